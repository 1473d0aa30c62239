"""Adam, AdamW and SGD of torch, and clipping; row-sparse gradients are taken without forming dense ones.

One kernel call (kernels.py) updates all parameters of a group that are float32 on the CPU;
others go through plain torch.
"""

from .adam import Adam, AdamW
from .clipping import clip_grad_norm_, clip_grad_value_
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "clip_grad_norm_", "clip_grad_value_"]
