"""Training: the loop, checkpoints, clock, loggers, locks and the description of the machine."""
