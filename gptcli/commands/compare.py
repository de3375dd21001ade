"""gptcli compare: what did each change buy, over seeds and with intervals."""

import shutil
import sys

from gptcli.analysis.curves import METRICS

SUMMARY = "compare finished runs, grouped by what differs besides the seed, with error bars"
EXAMPLES = """examples:
  gptcli compare outputs/multirun/2027-01-05/14-03-22
  gptcli compare 'outputs/2027-*' --by stage --baseline 4_7 --html ladder.html
  gptcli compare outputs/multirun/2027-01-05/15-20-00 --png heads.png     # of a study: its question and its figure"""


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run, sweep folder or glob of these; or latest"
    )
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="group by this setting only (repeatable; default: the study's)",
    )
    parser.add_argument(
        "--baseline",
        metavar="GROUP",
        help="what to compare with: a group's name, KEY=VALUE (where several groups have it, the one with the same "
        "other settings), or previous for the group before (default: the study's, or else the first)",
    )
    parser.add_argument(
        "--metric", choices=METRICS, help="loss to compare (default: full_val_loss when all runs have it)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--csv", metavar="FILE", help="also write one row per group")
    parser.add_argument("--png", metavar="FILE", help="also write the figures (needs matplotlib)")
    parser.add_argument("--html", metavar="FILE", help="also write one self-contained page (needs plotly)")


def run(arguments):
    """Compares the runs, prints the table and writes the files that were asked for."""
    # scipy takes a moment to import; --help should not wait for it.
    from gptcli.analysis.compare import compare
    from gptcli.analysis.tables import terminal_lines, to_json

    writers = _writers(arguments)
    comparison = compare(
        _runs(arguments.runs), by=arguments.by, baseline=arguments.baseline, metric=arguments.metric
    )
    for path, content in [(path, make(comparison)) for path, make in writers]:
        _write(path, content)
    if arguments.json:
        print(to_json(comparison))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(terminal_lines(comparison, width)))
    return 0


def _runs(texts):
    from gptcli.runs import find_runs, resolve_run

    return find_runs([resolve_run(text).run_path if text == "latest" else text for text in texts])


def _writers(arguments):
    """Checks every file and library that will be needed before anything is computed."""
    from gptcli.analysis import page, plots
    from gptcli.analysis.output import check_target
    from gptcli.analysis.tables import to_csv

    writers = []
    for option, make, check in (
        ("csv", lambda comparison: to_csv(comparison).encode(), None),
        ("png", plots.to_png, plots.check_library),
        ("html", lambda comparison: page.to_html(comparison).encode(), page.check_library),
    ):
        if path := getattr(arguments, option):
            check_target(path, f"--{option}")
            if check:
                check()
            writers.append((path, make))
    return writers


def _write(path, content):
    from gptcli.analysis.output import write
    from gptcli.terminal import printable

    write(path, content)
    print(f"wrote {printable(path)}", file=sys.stderr)
