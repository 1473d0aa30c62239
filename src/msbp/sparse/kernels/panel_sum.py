"""A sum of weighted rows that stays in registers, which numba has no words for."""

from numba import types
from numba.extending import intrinsic

from .lanes import BYTES, Lanes

__all__ = ["BYTES", "panel_sum"]


def panel_sum(lanes: int, add: bool = False):
    """A kernel for rows of `lanes` columns; with `add` the sum begins with what is in `out`."""

    @intrinsic
    def panel(typing, out, base, stride, rows, values, start, stop):
        """out[:lanes] ← Σ over q in [start, stop) of values[q] · base[rows[q]][:lanes]; all are addresses.

        rows are int32; the rows of base lie `stride` bytes apart.
        """

        def build(context, builder, signature, args):
            out, *product = args
            floats = Lanes(builder, lanes)
            floats.store(floats.weighted_sum(*product, first=floats.load(out) if add else None), out)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), build

    return panel
