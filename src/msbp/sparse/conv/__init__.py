"""Convolutions with a sparse backward pass: torch's own, and one with its maximum over time as one unit."""
