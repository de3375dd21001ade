"""gptcli bench: how fast a configuration trains on this machine, and how much of the machine that is."""

import json

from gptcli.errors import UserError

SUMMARY = """Measure training speed without writing a run: milliseconds a step, tokens a second, peak memory, and the
share of the rate of torch's matrix product on this machine, measured on the spot at the same precision and threads.

FLOPs are those of gptcli params. The median over chunks of steps is given, with the fastest and slowest chunk."""
EXAMPLES = """examples:
  gptcli bench stage=4_10
  gptcli bench stage=5_11 trainer.precision=bf16 --seconds 60 --json
  gptcli bench stage=4_10 trainer.compile=false trainer.threads=1 --members 16"""

_CHUNKS = 10


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, as for train")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="how long to measure (default 5)")
    parser.add_argument("--members", type=int, default=1, metavar="N", help="models trained as one, as in an ensemble")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="as for train")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Measures and prints; returns the exit status."""
    from gptcli.composition import compose, hydra_session, prepare

    if not 0 < arguments.seconds < float("inf"):
        raise UserError(f"--seconds {arguments.seconds} must be a number above 0")
    if arguments.members < 1:
        raise UserError(f"--members {arguments.members} must be at least 1")
    with hydra_session():
        overrides = prepare(arguments.overrides, config_directories=arguments.config_dir)
        config, _ = compose(overrides, config_directories=arguments.config_dir)

    from gptcli.analysis.speed import measure_speed

    facts = measure_speed(config, arguments.seconds, arguments.members, _CHUNKS)
    print(json.dumps(facts, indent=2) if arguments.json else _as_text(facts))
    return 0


def _as_text(facts):
    from gptcli.terminal import table

    step = facts["milliseconds_per_step"]
    members = f", {facts['members']} models as one" if facts["members"] > 1 else ""
    rows = [
        ("step", f"{step['median']:.3f} ms   ({step['minimum']:.3f} to {step['maximum']:.3f}){members}"),
        ("training", f"{facts['tokens_per_second']:,.0f} tokens/s"),
        ("evaluation", f"{facts['evaluation_tokens_per_second']:,.0f} tokens/s"),
        ("arithmetic", f"{facts['gflops_per_second']:.1f} GFLOP/s, {facts['share_of_matmul_rate']:.1%} of torch's"
         f" {facts['matmul_gflops_per_second']:.0f} in a {facts['precision']} matrix product here"),
        ("peak memory", f"{facts['peak_memory_bytes'] / 2**20:,.0f} MiB"),
    ]
    head = f"stage {facts['stage']}   {facts['parameters']:,} parameters   {facts['where']}"
    return "\n".join([head, *table(rows)])
