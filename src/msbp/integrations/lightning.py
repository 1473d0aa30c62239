"""SparseCallback for Lightning's Trainer: a schedule of the sparse backward pass."""

from lightning.pytorch import Callback, LightningModule, Trainer

from . import SparseSchedule


class SparseCallback(Callback):
    """Follows a SparseSchedule; what it logs goes to the module's loggers."""

    def __init__(self, schedule: SparseSchedule):
        self.schedule = schedule

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        """Set the layers for the step that begins."""
        self.schedule.before_step(pl_module, trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        """Log the step that has ended."""
        pl_module.log_dict(self.schedule.after_step(pl_module))
