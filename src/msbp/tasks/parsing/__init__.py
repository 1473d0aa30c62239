"""Transition-based dependency parsing."""
