"""Chains of stages: linear layers with activation and dropout, an embedding before and a loss after them."""
