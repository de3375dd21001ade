"""One run while it is trained: its settings, its directory and how far it has come."""

import math
from dataclasses import asdict, dataclass, field

import torch

from gptcli.config import to_dict
from gptcli.training.checkpoint import save_checkpoint


@dataclass
class Progress:
    """What a run has measured so far; saved with every checkpoint, so that a resumed run reports the same."""

    done: int = 0  # updates
    seconds: float = 0.0
    train_loss: float | None = None
    val_loss: float | None = None
    best_val_loss: float | None = None
    best_step: int | None = None
    batch_loss_sum: float = 0.0
    batch_losses: int = 0
    skipped_steps: int = 0


@dataclass
class Run:
    """A run in training.

    batches is its TrainingBatches, windows what its evaluations look at, recorder where its measurements go.
    """

    config: object
    directory: object
    recorder: object
    batches: object
    windows: object
    progress: Progress = field(default_factory=Progress)
    failure: str | None = None
    interrupted: bool = False
    full_split: object = None  # the SplitLoss at the end
    unsaved: str | None = None  # why the newest checkpoint could not be saved

    @property
    def label_offset(self):
        """The walkthrough's step files number an update from 0, so their step 0 is one update done."""
        return 1 if self.config.recipe.name == "walkthrough" else 0

    @property
    def label(self):
        """The step that records carry."""
        return self.progress.done - self.label_offset

    def is_due(self, every):
        """Returns whether something that happens every so many steps happens now."""
        return every > 0 and self.label >= 0 and self.label % every == 0

    def note_evaluation(self, train_loss, val_loss):
        """Takes the losses of an evaluation; returns whether the validation loss is the best so far.

        One that is not finite is the run's failure: a step changes nothing where its loss is not finite, so the weights
        have grown out of range, and will not come back.
        """
        progress = self.progress
        progress.train_loss, progress.val_loss = train_loss, val_loss
        if not math.isfinite(val_loss):
            self.failure = (
                f"not finite at step {self.label}: the validation loss is {val_loss};"
                " lower optimizer.learning_rate or set trainer.grad_clip=1"
            )
            return False
        if progress.best_val_loss is not None and not val_loss < progress.best_val_loss:
            return False
        progress.best_val_loss, progress.best_step = val_loss, self.label
        return True

    def batch_loss(self, *, reset):
        """Returns the mean training loss since the last reset, or None when no step was made."""
        progress = self.progress
        mean = progress.batch_loss_sum / progress.batch_losses if progress.batch_losses else None
        if reset:
            progress.batch_loss_sum, progress.batch_losses = 0.0, 0
        return mean

    def save(self, engine, member, corpus, *, best):
        """Writes a checkpoint of engine's member; raises CheckpointNotSaved where the disk refuses."""
        state = {
            "step": self.progress.done,
            "progress": asdict(self.progress),
            "batches": self.batches.state(self.progress.done),
            "config": to_dict(self.config),
            "vocabulary": list(corpus.tokenizer.symbols),
            "corpus": {"name": corpus.name, "sha256": corpus.sha256},
        }
        return save_checkpoint(
            self.directory.path,
            self.progress.done,
            engine.model_state(member),
            engine.optimizer_state(member),
            state,
            keep=self.config.trainer.keep_checkpoints,
            best=best,
            extra=random_state(),
        )


def random_state():
    """Returns torch's generators' states as named byte tensors."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_state(states):
    """Sets torch's generators to what random_state returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def progress_from(state):
    """Returns the Progress that a checkpoint's state holds; TypeError where it is none."""
    progress = Progress(**state["progress"])
    for name, value in asdict(progress).items():
        whole = name in ("done", "best_step", "batch_losses", "skipped_steps")
        optional = getattr(Progress, name) is None
        if type(value) not in ((int,) if whole else (int, float)) and not (optional and value is None):
            raise TypeError(f"progress.{name} is {value!r}")
    if progress.done != state.get("step"):
        raise TypeError(f"progress.done is {progress.done}, the step {state.get('step')!r}")
    return progress
