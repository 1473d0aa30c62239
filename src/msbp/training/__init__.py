"""Training: the loop, what a run keeps and how it goes on, its clock and its machine."""
