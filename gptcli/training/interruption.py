"""Signals turned into a request to stop after the current step."""

import contextlib
import os
import signal
import threading


class Interruption:
    """Remembers the first signal that asks the run to stop; a second SIGINT ends the process at once.

    signal_number is 0 until then. The exit status of a run stopped this way is 128 + signal_number, as a shell reports
    it: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
    """

    SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

    def __init__(self):
        self.signal_number = 0

    def __bool__(self):
        return self.signal_number != 0

    def request(self, number):
        """Asks the run to stop as if the signal had come."""
        self.signal_number = self.signal_number or number

    @property
    def name(self):
        """The signal's name, for example SIGINT."""
        return signal.Signals(self.signal_number).name

    @contextlib.contextmanager
    def listening(self):
        """Installs the handlers for the time of the block; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        numbers = [getattr(signal, name) for name in self.SIGNALS if hasattr(signal, name)]
        previous = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _handle(self, number, _frame):
        if self.signal_number and number == signal.SIGINT:
            # The last complete checkpoint stays: a half-written one is never renamed into place.
            os._exit(128 + number)
        self.request(number)


class JobInterruption(Interruption):
    """For a job of a sweep: a terminal's Ctrl-C is the sweep's to pass on, and a sweep that has died is a reason to stop.

    Args:
        parent: the sweep's process number.
    """

    def __init__(self, parent):
        super().__init__()
        self.parent = parent

    def __bool__(self):
        if os.getppid() != self.parent:
            self.request(signal.SIGTERM)
        return self.signal_number != 0

    def _handle(self, number, _frame):
        if number != signal.SIGINT:
            self.request(number)
