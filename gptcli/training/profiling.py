"""A trace of a few training steps, for Perfetto or TensorBoard's profile tab."""

import torch
from torch.profiler import ProfilerActivity

# The first steps allocate and warm up; they are not what a run spends its time on.
_FIRST_STEP = 10
_STEPS = 20
_FILE_NAME = "steps.pt.trace.json"


class StepProfiler:
    """Traces steps 10 to 29 after the start into FOLDER/profile/steps.pt.trace.json.

    Args:
        report: called with one line that says where the trace lies, or why there is none.
    """

    def __init__(self, folder, report):
        self.path, self.report = folder / "profile" / _FILE_NAME, report
        self.seen, self._profile = 0, None

    def step(self):
        """Says that a training step begins."""
        if self.seen == _FIRST_STEP:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._profile = torch.profiler.profile(activities=activities, record_shapes=True)
            self._profile.start()
        if self.seen == _FIRST_STEP + _STEPS:
            self.close()
        self.seen += 1

    def close(self):
        """Writes the trace if one is being taken."""
        if self._profile is None:
            return
        self._profile.stop()
        try:
            self.path.parent.mkdir(exist_ok=True)
            self._profile.export_chrome_trace(str(self.path))
            self.report(f"trace of {min(_STEPS, self.seen - _FIRST_STEP)} steps in {self.path}")
        except OSError as error:
            self.report(f"the trace could not be written: {error.strerror or error}")
        self._profile = None
