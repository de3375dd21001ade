"""The two ways in which a command ends badly, and the exit status that each one has."""


class UserError(Exception):
    """Wrong use: one line that names the bad value and what would be right. Exit status 2."""

    exit_status = 2


class RunError(Exception):
    """Right use that failed: a diverged run, a damaged checkpoint, a failed download. Exit status 1."""

    exit_status = 1
