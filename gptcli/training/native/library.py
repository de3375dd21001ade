"""Compiles kernels.cpp for this machine, once, and keeps the result in the user's cache directory."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from gptcli.data.cache import user_cache_directory

_FOLDER = Path(__file__).parent
# Sums may be reordered into vectors; not-a-number and infinity keep their meaning, so that divergence shows.
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)


class NoLibrary(Exception):
    """The kernels cannot be had; the message says why in a few words."""


def find_compiler():
    """Returns the command of a C++ compiler as a list, CXX first, or None."""
    chosen = os.environ.get("CXX")
    names = [chosen] if chosen else ["c++", "g++", "clang++"]
    for name in names:
        words = shlex.split(name)
        if words and shutil.which(words[0]):
            return words
    return None


@cache
def load_library():
    """Returns the kernels as a ctypes library.

    Raises:
        NoLibrary: there is no C++ compiler, it fails, or the cache directory cannot be written.
    """
    path = library_path()
    if path.is_file():
        try:
            return _open(path)
        except OSError:  # cut short or damaged: made anew
            path.unlink(missing_ok=True)
    _compile(path)
    try:
        return _open(path)
    except OSError as error:
        raise NoLibrary(f"the compiled kernels do not load: {error}") from error


def why_no_bf16():
    """Returns in words why the kernels do not compute in bf16 here, or None when they do."""
    try:
        if load_library().has_bf16():
            return None
    except NoLibrary as error:
        return str(error)
    return "they compute in bf16 only on a processor with AVX512_BF16"


def library_path():
    """Returns where the kernels for these sources, these flags and this processor lie, compiled or not."""
    digest = hashlib.sha256()
    for source in sorted([*_FOLDER.glob("*.h"), *_FOLDER.glob("*.cpp")]):
        digest.update(source.read_bytes())
    for part in (*_FLAGS, platform.machine(), platform.system(), _processor_features()):
        digest.update(part.encode() + b"\0")
    return user_cache_directory() / "kernels" / f"{digest.hexdigest()[:32]}.so"


def _processor_features():
    """What -march=native depends on, so that a cache shared by several machines never mixes them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def _compile(path):
    compiler = find_compiler()
    if compiler is None:
        raise NoLibrary("there is no C++ compiler (c++, g++ or clang++; CXX names another)")
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        os.close(handle)
        command = [*compiler, *_FLAGS, str(_FOLDER / "kernels.cpp"), "-o", partial]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NoLibrary(f"{compiler[0]} failed: {lines[0][:200]}")
        os.replace(partial, path)
        partial = None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibrary(f"the kernels could not be compiled: {error}") from error
    finally:
        if partial:
            Path(partial).unlink(missing_ok=True)


def _open(path):
    library = ctypes.CDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.has_bf16.restype = ctypes.c_int
    library.workspace_floats.argtypes = [pointer] * 3 + [number] * 3
    library.workspace_floats.restype = number
    library.run.argtypes = [pointer] * 3 + [number] + [pointer] * 6 + [number] * 4 + [pointer] * 3
    library.run.restype = ctypes.c_int
    return library
