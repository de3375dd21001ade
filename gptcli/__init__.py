"""gptcli grows a GPT one component at a time and measures what each component buys."""

__version__ = "0.1.0"
