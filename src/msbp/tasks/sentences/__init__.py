"""Sentence classification."""
