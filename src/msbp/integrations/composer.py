"""SparseCallback for Composer's Trainer: a schedule of the sparse backward pass."""

from composer import Callback, Logger, State

from . import SparseSchedule


class SparseCallback(Callback):
    """Follows a SparseSchedule; what it logs goes to the trainer's loggers."""

    def __init__(self, schedule: SparseSchedule):
        self.schedule = schedule

    def batch_start(self, state: State, logger: Logger) -> None:
        """Set the layers for the step that begins."""
        self.schedule.before_step(state.model, state.timestamp.batch.value)

    def batch_end(self, state: State, logger: Logger) -> None:
        """Log the step that has ended."""
        metrics = self.schedule.after_step(state.model)
        if metrics:
            logger.log_metrics(metrics)
