"""Runs: stages that follow one another, with the workspaces that their passes take turns in.

Letters: B batch, i in_features, n out_features, F tokens an example.
"""

import torch
from torch import Tensor, nn

from ..suited import kernels_allowed, suits
from .node import Lease, Pass
from .plain import push
from .stage import Stage
from .workspace import Workspace

Parameters = list[Tensor | None]


class StageRun:
    """One autograd node for several stages: by kernel where they fit, in plain torch on any device and dtype.

    With an embedding the input is looked up in it: the F tokens of an example give F rows side by side.
    """

    def __init__(self, stages: tuple[Stage, ...], embedding: nn.Embedding | None = None):
        self.stages, self.embedding = stages, embedding
        self.inputs, self.outputs = stages[0].linear.in_features, stages[-1].linear.out_features
        layers = [(stage.linear, name) for stage in stages for name in ("weight", "bias")]
        shapes = [shape for stage in stages for shape in _shapes(stage.linear)]
        self.owners = [(layer._parameters, name) for layer, name in layers]
        self.shapes: list[tuple[int, ...]] = [*shapes]
        if embedding is not None:
            self.owners.append((embedding._parameters, "weight"))
            self.shapes.append((embedding.num_embeddings, embedding.embedding_dim))
        self.addresses: list[int] = []
        self.pools: dict[tuple[tuple, ...], list[Workspace]] = {}

    def parameters(self) -> Parameters:
        """A weight and a bias, or None, for each stage; then the embedding's table, if there is one."""
        try:
            return [own[name] for own, name in self.owners]
        except KeyError:  # pruned and parametrised ones are no parameters of their layer
            return [p for stage in self.stages for p in (stage.linear.weight, stage.linear.bias)]

    def __call__(self, x: Tensor) -> Tensor:
        """The stages applied to x (..., i)."""
        *batch, width = x.shape
        if width != self.inputs:
            got, wanted = tuple(x.shape), f"(..., {self.inputs})"
            raise ValueError(f"{self.stages[0].linear} got an input of shape {got}, not {wanted}")
        device = x.device.type
        if torch.is_autocast_enabled(device):
            # selection and memory need the parameters' precision, so the stages step out of autocast
            with torch.autocast(device, enabled=False):
                return self(x.to(self.stages[0].linear.weight.dtype))
        if len(batch) != 1:
            return self(x.reshape(-1, width)).view(*batch, self.outputs)
        parameters = self.parameters()
        if not torch.is_grad_enabled():
            return push(self.stages, x, parameters)[0]
        x = x.contiguous()
        return Pass.apply(self.stages, self.lease(x, parameters) if suits(x) else None, x, *parameters)

    def look_up(self, tokens: Tensor) -> Tensor | None:
        """The stages applied to the rows of the tokens (B, F), or None where no kernel can."""
        parameters = self.parameters()
        ordinary = tokens.dim() == 2 and tokens.is_cpu and tokens.dtype in (torch.int32, torch.int64)
        if not ordinary or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return None
        if len(parameters) != len(self.shapes) or tokens.shape[1] * self.shapes[-1][1] != self.inputs:
            return None
        tokens = tokens.contiguous()
        lease = self.lease(tokens, parameters)
        return None if lease is None else Pass.apply(self.stages, lease, tokens, *parameters)

    def lease(self, x: Tensor, parameters: Parameters) -> Lease | None:
        """A workspace for a batch, or None if the batch has to go through plain torch."""
        B = x.shape[0]
        if not B or not kernels_allowed():
            return None
        addresses = []
        for p, shape in zip(parameters, self.shapes, strict=True):
            if p is not None and not (p.shape == shape and p.is_contiguous()):
                return None
            addresses.append(0 if p is None else p.data_ptr())
        if addresses != self.addresses:
            if not all(p is None or suits(p) for p in parameters):
                return None
            self.addresses, self.pools = addresses, {}
        pool = self.pools.setdefault(tuple([stage.settings for stage in self.stages]), [])
        workspace = pool.pop() if pool else None
        if workspace is None or workspace.capacity < B:
            workspace = Workspace(self.stages, addresses, B, self.embedding)
        return Lease(pool, workspace)


def _shapes(linear: nn.Linear) -> tuple[tuple[int, int], tuple[int]]:
    return (linear.out_features, linear.in_features), (linear.out_features,)
