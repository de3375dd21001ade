"""The entry point: finds the command that is asked for, imports it alone, and turns errors into an exit status."""

import argparse
import difflib
import errno
import importlib
import os
import sys

from gptcli import __version__
from gptcli.errors import RunError, UserError
from gptcli.terminal import open_missing_streams, printable, silence

# Name -> what it does; the module gptcli.commands.<name> is imported only when its command runs, so that help is quick.
COMMANDS = {
    "train": "compose a stage, train it, log and checkpoint it; -m sweeps",
    "resume": "go on with a run, or with what a sweep lacks, exactly where it stopped",
    "stages": "the ladder of stages as a table",
    "diff": "what changed between two stages or runs",
    "params": "parameters by module, FLOPs per token, memory",
    "eval": "loss of a run on the whole split, with its standard error",
    "generate": "text from a run",
    "compare": "runs side by side, with error bars",
    "inspect": "what each head attends to and is worth; gradients and activations by depth",
    "bench": "speed of a configuration on this machine",
    "runs": "find runs, with their status and result",
    "data": "list, fetch or locate corpora",
    "completion": "shell completion for bash, zsh or fish",
}

_EXAMPLES = """examples:
  gptcli train stage=4_10
  gptcli train -m stage=4_10 model.num_heads=1,2,4,8 model.num_layers=1,3
  gptcli generate latest --prompt "ROMEO:"
  tensorboard --logdir outputs

gptcli COMMAND --help explains a command."""


def main(arguments=None):
    """Runs gptcli with arguments (default: the command line's) and returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A console that cannot show a character must not end a run.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _dispatch(arguments)
        # Here and not at exit, where Python could only complain.
        sys.stdout.flush()
        return status
    except (UserError, RunError) as error:
        return _report(error, error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`).
        silence(sys.stdout)
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            silence(sys.stdout)
        return _report(error, 1)
    except Exception as error:
        return _report(error, 1)


def _dispatch(arguments):
    parser = _parser()
    if not arguments or arguments[0] in ("-h", "--help"):
        parser.print_help()
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"gptcli {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        found = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {found[0]}?" if found else f"; the commands are {', '.join(COMMANDS)}"
        raise UserError(f"unknown command {name!r}{hint}")
    command = importlib.import_module(f"gptcli.commands.{name}")
    command_parser = _ArgumentParser(
        prog=f"gptcli {name}",
        description=command.SUMMARY,
        epilog=getattr(command, "EXAMPLES", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(command_parser)
    return command.run(command_parser.parse_intermixed_args(arguments[1:])) or 0


class _ArgumentParser(argparse.ArgumentParser):
    """Reports wrong use as every other error is reported, in one line."""

    def error(self, message):
        raise UserError(f"{message} (see {self.prog} --help)")


def _parser():
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items()]
    return argparse.ArgumentParser(
        prog="gptcli",
        usage="gptcli COMMAND [arguments]",
        description="Grow a GPT one component at a time and measure what each component buys.\n\n"
        + "commands:\n" + "\n".join(lines),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _report(error, status):
    """Prints an error in one line; GPTCLI_DEBUG=1 shows where it came from."""
    if os.environ.get("GPTCLI_DEBUG") == "1":
        raise error
    text = str(error) if isinstance(error, (UserError, RunError)) else f"{type(error).__name__}: {error}"
    hint = "" if isinstance(error, (UserError, RunError)) else " (GPTCLI_DEBUG=1 shows where)"
    print(f"error: {printable(text)}{hint}", file=sys.stderr)
    return status
