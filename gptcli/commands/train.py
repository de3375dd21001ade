"""gptcli train: one run, or with -m a sweep."""

import textwrap

from gptcli.stages import group_values

_STUDIES = textwrap.fill(", ".join(name for name in group_values("study") if name != "none"), width=110)

SUMMARY = f"""Compose a configuration, train it, and leave a run directory with curves, checkpoints and samples.

Settings are Hydra overrides: KEY=VALUE, or GROUP=NAME for a whole group (stage, data, optimizer, schedule, recipe).
gptcli stages lists the stages; gptcli train --cfg job shows every setting.

-m study=NAME runs a study, a question with its sweep, which gptcli compare then answers. The studies:
{_STUDIES}"""

EXAMPLES = """examples:
  gptcli train stage=4_10
  gptcli train stage=4_10 model.num_heads=8 trainer.steps=2000 seed=7
  gptcli train stage=4_10 recipe=walkthrough
  gptcli train data=text_file data.path=my.txt
  gptcli train -m stage=4_10 model.num_heads=1,2,4,8 model.num_layers=1,3
  gptcli train -m 'stage=glob(4_*)' 'seed=range(0,8)'
  gptcli train -m study=heads
  gptcli train -m study=heads 'seed=range(0,3)' trainer.steps=500"""


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, as in Hydra")
    parser.add_argument("-m", "--multirun", action="store_true", help="sweep over every combination of listed values")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="a folder with stages or groups of your own"
    )
    parser.add_argument("--cfg", choices=["job"], help="print the composed settings, or with -m the jobs, and stop")


def run(arguments):
    """Trains; returns the exit status."""
    from gptcli.composition import compose, hydra_session, prepare
    from gptcli.validation import validate

    overrides = prepare(
        arguments.overrides, multirun=arguments.multirun, config_directories=arguments.config_dir
    )
    with hydra_session():
        if arguments.multirun and arguments.cfg:
            return _print_jobs(overrides, arguments.config_dir)
        if arguments.multirun:
            from gptcli.sweep.command import run_sweep

            return run_sweep(overrides, arguments.config_dir)
        config, composed = compose(overrides, config_directories=arguments.config_dir)
        validate(config)
        if arguments.cfg:
            return _print_settings(config)
        return _train_one(config, composed, arguments.overrides)


def _print_jobs(overrides, config_directories):
    from gptcli.sweep.jobs import compose_jobs
    from gptcli.terminal import table

    jobs = compose_jobs(overrides, config_directories)
    print("\n".join(table([(job.name, " ".join(job.overrides), job.reason or "") for job in jobs])))
    return 0


def _print_settings(config):
    import yaml

    from gptcli.config import to_dict

    print(yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True), end="")
    return 0


def _train_one(config, composed, overrides):
    from pathlib import Path

    from gptcli.composition import provenance_yaml, run_directory_path
    from gptcli.training.interruption import Interruption
    from gptcli.training.session import Provenance, train_new

    interruption = Interruption()
    path = Path(run_directory_path(composed))
    provenance = Provenance(overrides, *provenance_yaml(composed))
    (finished,) = train_new([config], [path], [provenance], interruption)
    return exit_status(finished, interruption)


def exit_status(finished, interruption):
    """Returns 0, 1 with a line on standard error for a failed run, or 128 + signal for an interrupted one."""
    if finished.failure:
        from gptcli.errors import RunError

        raise RunError(f"{finished.failure} (run {finished.directory.path})")
    return 128 + interruption.signal_number if finished.interrupted else 0
