"""Memorized sparse backpropagation: library, tasks and measurement (arXiv 1905.10194)."""
