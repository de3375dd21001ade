"""gptcli resume: a run, or a sweep's missing jobs, goes on."""

SUMMARY = """Go on with a run exactly where its newest whole checkpoint left it, in the same directory.

RUN is a run directory, or latest. A resumed run ends with the same weights and records as one that was never
interrupted. Given a sweep's directory, the jobs that are missing, interrupted or failed are run, under their own
numbers. A longer run (--steps) keeps the learning rate of a constant schedule; a schedule that depends on the number
of steps follows the longer run's from here on, and says so."""

EXAMPLES = """examples:
  gptcli resume latest
  gptcli resume outputs/2027-01-05/14-03-22-4_10-7c1e --steps 20000
  gptcli resume outputs/multirun/2027-01-05/14-10-00"""


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="run directory, sweep directory, or latest")
    parser.add_argument("--steps", type=int, metavar="N", help="train to this many steps in all")
    parser.add_argument("--data-path", metavar="FILE", help="where the same corpus file lies now")


def run(arguments):
    """Resumes; returns the exit status."""
    from pathlib import Path

    from gptcli.errors import UserError
    from gptcli.runs import resolve_run

    if arguments.steps is not None and arguments.steps < 1:
        raise UserError(f"--steps {arguments.steps} must be at least 1")
    if (Path(arguments.run) / "sweep.json").is_file():
        from gptcli.sweep.command import resume_sweep

        if arguments.steps or arguments.data_path:
            raise UserError("--steps and --data-path are for a single run, not for a sweep")
        return resume_sweep(Path(arguments.run))
    reference = resolve_run(arguments.run)
    if reference.checkpoint_name:
        raise UserError(f"{arguments.run} is a checkpoint; resume takes the run directory {reference.run_path}")

    from gptcli.commands.train import exit_status
    from gptcli.training.interruption import Interruption
    from gptcli.training.session import resume

    interruption = Interruption()
    finished = resume(reference.run_path, interruption, steps=arguments.steps, data_path=arguments.data_path)
    return exit_status(finished, interruption)
