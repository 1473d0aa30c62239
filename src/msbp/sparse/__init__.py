"""Sparse backpropagation with memory for torch modules."""
