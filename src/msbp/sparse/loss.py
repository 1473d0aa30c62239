"""cross_entropy: the loss that knows chains."""

from torch import Tensor, nn


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy of logits (B, C) and class indices (B), as torch.nn.functional.cross_entropy."""
    return nn.functional.cross_entropy(logits, target)
