"""SparseCallback for transformers.Trainer: a schedule of the sparse backward pass."""

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from . import SparseSchedule


class SparseCallback(TrainerCallback):
    """Follows a SparseSchedule; what it logs is in `trainer.state.log_history`."""

    def __init__(self, schedule: SparseSchedule):
        self.schedule = schedule

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: nn.Module, **others: object,
    ) -> None:  # fmt: skip
        """Set the layers for the step that begins."""
        self.schedule.before_step(model, state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: nn.Module, **others: object,
    ) -> None:  # fmt: skip
        """Log the step that has ended."""
        metrics = self.schedule.after_step(model)
        if metrics:
            state.log_history.append({**metrics, "step": state.global_step})
