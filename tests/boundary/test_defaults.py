"""Default types and devices that a library changes, and models that are built on meta and filled later."""

import pytest
import torch
from torch import nn

from msbp import optim
from msbp.sparse import convert, cross_entropy, memories

from .networks import (
    ENTRIES,
    assert_close,
    batch,
    build,
    each_dtype,
    each_entry,
    each_install,
    each_kind,
    gradients,
    install,
    pair,
    weights,
)

DEFAULTS = {
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "bfloat16": lambda: torch.set_default_dtype(torch.bfloat16),
    "float16": lambda: torch.set_default_dtype(torch.float16),
    "meta": lambda: torch.set_default_device("meta"),
}
each_default = pytest.mark.parametrize("change", DEFAULTS.values(), ids=DEFAULTS)


@each_default
@each_entry
@each_kind
def test_a_step_does_not_depend_on_torchs_defaults(kind, entry, change):
    """Of a model from before the change, with memory, by our optimizer, and by kernels built anew."""
    x, y = batch(kind)
    models = [install(build(kind), kind, r=0.25, gamma=0.8) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    result = []
    for model in models:
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        if model is models[1] and kind != "MaxOverTime":
            change()
        elif model is models[1]:
            torch.set_default_dtype(
                torch.float64
            )  # its network makes tensors of its own, on the default device
        for _ in range(2):
            optimizer.zero_grad()
            ENTRIES[entry](model, x, y)
            optimizer.step()
        state = {f"m of {name}": m.m.clone() for name, m in memories(model).items()}
        result.append({**weights(model), **state, **{f"g of {k}": g for k, g in gradients(model).items()}})
    assert_close(result[1], result[0], 1e-6)


@each_default
@each_kind
def test_conversion_does_not_depend_on_torchs_defaults(kind, change):
    model = build(kind)
    change()
    install(model, kind, r=0.25, gamma=0.8)
    for memory in memories(model).values():
        assert memory.m.dtype is torch.float32 and memory.m.device.type == "cpu" and not memory.m.any()


@each_dtype
@each_install
@each_kind
def test_every_type_gives_the_plain_networks_gradients(kind, how, dtype):
    model, plain = pair(kind, how, dtype)
    x, y = batch(kind, dtype)
    for entry in ENTRIES.values():
        for network in (model, plain):
            network.zero_grad()
            entry(network, x, y)
        # bfloat16 rounds the sums of an LSTM's time steps elsewhere than torch's own kernel does
        assert_close(gradients(model), gradients(plain), 0.06 if dtype is torch.bfloat16 else 2e-5)


@pytest.mark.parametrize("fill", ["to_empty", "assign"])
@each_kind
def test_a_model_built_on_meta_starts_with_an_empty_memory(kind, fill):
    source = build(kind)
    with torch.device("meta"):
        model = build(kind)
    install(model, kind, r=0.25, gamma=0.8)
    twin = install(build(kind), kind, r=0.25, gamma=0.8)
    twin.load_state_dict(source.state_dict())
    junk = [torch.full((n,), 1e9) for n in range(1, 200)]  # memory that to_empty may find
    del junk
    if fill == "to_empty":
        model.to_empty(device="cpu")
        assert all(not m.m.any() for m in memories(model).values())
    model.load_state_dict(source.state_dict(), assign=fill == "assign")
    x, y = batch(kind)
    for _ in range(2):
        for network in (model, twin):
            cross_entropy(network(x), y).backward()
    assert_close(gradients(model), gradients(twin), 1e-6)
    held, expected = ({k: m.m for k, m in memories(network).items()} for network in (model, twin))
    assert_close(held, expected, 1e-6)


def test_a_model_on_the_meta_device_raises_torchs_error():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
        x, y = torch.randn(4, 6), torch.zeros(4, dtype=torch.long)
    convert(model, r=0.25)
    with pytest.raises((RuntimeError, NotImplementedError)):
        cross_entropy(model(x), y).backward()
        memories(model)["0"].m.tolist()
