"""Costs of a training step: every row trains by the trainer's own step, in turns, in one process."""
