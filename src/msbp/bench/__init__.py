"""What a training step costs: every row trains by the trainer's own step, in turns, in one process."""
