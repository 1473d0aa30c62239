"""Grid: a convolution's input as places that hold a row of C channels, for gradients from single entries.

Letters: B examples, C channels in, F maps, H and W height and width of the input (H = 1 in one dimension), T
positions of the output, w places of a window.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..buffers import arange, zeros
from .patches import EMPTY, Entries, scatter


class Grid:
    """The places of a batch of images x (B, C, H, W), the padding around each included and empty."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, x: Tensor, out: Sequence[int]):
        self.layer, self.x, self.out = layer, x, out
        self.images = x if x.dim() == 4 else x[:, :, None]
        self.stride, self.dilation = two(layer.stride), two(layer.dilation)
        self.window, self.padding = two(layer.kernel_size), two(layer.padding, 0)  # type: ignore[arg-type]

    @staticmethod
    def fits(layer: nn.Conv1d | nn.Conv2d) -> bool:
        """Whether a convolution is over all channels at once, with zeros around."""
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width with the padding."""
        (height, width), (down, right) = self.images.shape[2:], self.padding
        return height + 2 * down, width + 2 * right

    def places(self) -> Tensor:
        """Where the window of each position of the output starts (B T)."""
        height, width = self.size
        rows, columns = two(self.out)
        down = arange(rows) * self.stride[0] * width
        right = arange(columns) * self.stride[1]
        first = arange(len(self.x)) * height * width
        return (first[:, None, None] + down[:, None] + right).flatten()

    def gradients(
        self, entries: Entries, weight: Tensor, need_x: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """∂ℓ/∂W, ∂ℓ/∂b and ∂ℓ/∂x of the entries, in the shapes of weight, bias and x."""
        (height, width), (down, right) = self.images.shape[2:], self.padding
        rows = self.images.permute(0, 2, 3, 1).reshape(-1, self.images.shape[1])
        ids = zeros(len(self.x), *self.size, dtype=torch.int64) + EMPTY
        ids[:, down : down + height, right : right + width] = arange(len(rows)).view(-1, height, width)
        shifts = (arange(self.window[0]) * self.dilation[0] * self.size[1])[:, None]
        shifts = (shifts + arange(self.window[1]) * self.dilation[1]).flatten()
        by_place = weight.flatten(2).transpose(1, 2)[:, None].contiguous()  # (F, 1, w, C)
        grad_weight, grad_bias, grad_x = scatter(entries, rows, ids.flatten(), shifts, by_place, need_x)
        grad_weight = grad_weight[:, 0].transpose(1, 2).reshape(weight.shape)
        if grad_x is None:
            return grad_weight, grad_bias, None
        images = grad_x.view(-1, height, width, rows.shape[1]).permute(0, 3, 1, 2)
        return grad_weight, grad_bias, images.reshape(self.x.shape)


def two(sizes: Sequence[int], first: int = 1) -> tuple[int, int]:
    """Two sizes, the first being `first` where there is only one."""
    return (first, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])
