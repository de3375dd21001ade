"""gptcli completion: scripts for shells, and the words that they ask for."""

import sys

from gptcli.errors import UserError

SUMMARY = """Print the completion script for a shell: subcommands, options, groups, stage names and settings.

bash: add   eval "$(gptcli completion bash)"      to ~/.bashrc
zsh:  add   eval "$(gptcli completion zsh)"       to ~/.zshrc, after compinit
fish: run   gptcli completion fish > ~/.config/fish/completions/gptcli.fish"""
EXAMPLES = "examples:\n  gptcli completion bash"

_BASH = r"""_gptcli() {
    local current="${COMP_LINE:0:$COMP_POINT}" word
    word="${current##*[[:space:]]}"
    COMPREPLY=()
    local line
    while IFS= read -r line; do
        # bash splits words at =, and replaces only what stands behind the last one.
        [[ "$word" == *=* ]] && line="${line#"${word%"${word##*=}"}"}"
        COMPREPLY+=("$line")
    done < <(gptcli completion words -- "$current" 2>/dev/null)
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
    [[ ${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
}
complete -F _gptcli gptcli
"""

_ZSH = r"""_gptcli() {
    local -a found
    found=("${(@f)$(gptcli completion words -- "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
    else
        _files
    fi
}
compdef _gptcli gptcli
"""

_FISH = r"""complete -c gptcli -f -a '(gptcli completion words -- (commandline -cp) 2>/dev/null)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_OVERRIDE_COMMANDS = ("train", "params")
_RUN_COMMANDS = ("resume", "eval", "generate", "compare", "diff")


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("shell", choices=[*_SCRIPTS, "words"], metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument("line", nargs="?", help="for the scripts' own use: the line to complete")


def run(arguments):
    """Prints a script, or the completions of a line; returns the exit status."""
    if arguments.shell in _SCRIPTS:
        sys.stdout.write(_SCRIPTS[arguments.shell])
        return 0
    if arguments.line is None:
        raise UserError("completion words needs the line to complete")
    print("\n".join(completions(arguments.line)))
    return 0


def completions(line):
    """Returns the words that the last word of a command line can become; no file of the user's is read or run."""
    from gptcli.cli import COMMANDS

    words = line.split()
    last = "" if line[-1:].isspace() or not words else words[-1]
    before = words if last == "" else words[:-1]
    if len(before) <= 1:
        candidates = [*COMMANDS, "--help", "--version"]
    elif before[1] not in COMMANDS:
        return []
    elif last.startswith("-"):
        candidates = _options(before[1])
    else:
        candidates = _arguments(before[1], last)
    return [candidate for candidate in candidates if candidate.startswith(last)]


def _options(command):
    import argparse
    import importlib

    parser = argparse.ArgumentParser(prog=command)
    importlib.import_module(f"gptcli.commands.{command}").add_arguments(parser)
    return sorted(option for action in parser._actions for option in action.option_strings)


def _arguments(command, last):
    from gptcli.stages import stage_names

    if command in _OVERRIDE_COMMANDS:
        return _overrides(last)
    if command == "data":
        return ["list", "fetch", "path"]
    if command == "completion":
        return list(_SCRIPTS)
    return ["latest"] * (command in _RUN_COMMANDS) + (stage_names() if command == "diff" else [])


def _overrides(last):
    """Returns KEY= candidates, or the values of a key whose values are known; a list's last element is completed."""
    from gptcli.config import setting_keys
    from gptcli.stages import config_groups, group_values

    key, equals, value = last.partition("=")
    groups = config_groups()
    if not equals:
        keys = setting_keys()
        leaves = [one for one in keys if not any(other.startswith(f"{one}.") for other in keys)]
        return [f"{one}=" for one in sorted({*groups, *leaves}) if not one.startswith(("stage.", "study.", "study/"))]
    stem = key + "=" + value[: value.rfind(",") + 1]
    values = group_values(key) if key in groups else _known_values(key)
    return [stem + one for one in values]


def _known_values(key):
    """Returns the words that a setting can be set to."""
    import dataclasses

    from gptcli.config import Config

    kind, words = Config, ()
    for part in key.split("."):
        fields = {item.name: item for item in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
        if part not in fields:
            return []
        kind, words = fields[part].type, fields[part].metadata.get("words", ())
        if kind is bool:
            words = ("true", "false")
    return list(words)
