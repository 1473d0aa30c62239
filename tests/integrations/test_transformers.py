"""Models of transformers: what convert takes of them, equality at r = 1, and training by Trainer."""

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from msbp import optim
from msbp.sparse import SparseLinear, convert, memories, revert, status

from .architectures import ARCHITECTURES, OUTPUTS

pytestmark = pytest.mark.filterwarnings("ignore")
each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def build(name):
    model, batch = ARCHITECTURES[name]()
    for module in model.modules():  # masks of dropout are drawn by another generator
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train(), batch


def linear_layers(model):
    return [
        name for name, m in model.named_modules() if isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D"
    ]


@each_architecture
def test_every_linear_layer_but_the_output_is_converted(name):
    model, _ = build(name)
    expected = [layer for layer in linear_layers(model) if layer != OUTPUTS[name]]
    kept = convert(model, 0.25)
    assert list(kept) == expected and kept.skipped[OUTPUTS[name]] == "output layer"
    assert len(status(model)) >= len(expected)


@each_architecture
def test_a_full_ratio_is_plain_training(name):
    model, batch = build(name)
    plain = copy.deepcopy(model)
    keys = list(model.state_dict())
    convert(model, 1.0)
    assert list(model.state_dict()) == keys
    optimizers = [
        module.AdamW(network.parameters(), 1e-3) for network, module in ((model, optim), (plain, torch.optim))
    ]
    for _ in range(3):
        losses = []
        for network, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(network(**batch).loss)
            losses[-1].backward()
            optimizer.step()
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            if p.grad is not None:
                torch.testing.assert_close(p.grad.to_dense(), q.grad, rtol=1e-3, atol=1e-4)


@each_architecture
def test_a_small_ratio_learns_one_batch(name):
    model, batch = build(name)
    convert(model, 0.25)
    optimizer = optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


@each_architecture
def test_a_reverted_model_is_plain_again(name):
    model, batch = build(name)
    plain = copy.deepcopy(model)
    convert(model, 0.25)
    revert(model)
    for network in (model, plain):
        network(**batch).loss.backward()
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)


@pytest.mark.parametrize("memory", ["shared", "per_slot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_conv1d_is_the_linear_layer_of_the_transposed_weight(dtype, memory):
    from transformers.pytorch_utils import Conv1D

    holder = nn.ModuleDict({"layer": Conv1D(12, 6)}).to(dtype)
    twin = nn.ModuleDict({"layer": nn.Linear(6, 12)}).to(dtype)
    with torch.no_grad():
        twin["layer"].weight.copy_(holder["layer"].weight.t())
        twin["layer"].bias.copy_(holder["layer"].bias)
    for model in (holder, twin):
        convert(model, 0.25, memory=memory, layers="layer")
    assert isinstance(twin["layer"], SparseLinear)
    for _ in range(3):
        x = torch.randn(2, 5, 6, dtype=dtype)
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        for model, given in zip((holder, twin), inputs, strict=True):
            model.zero_grad()
            model["layer"](given).square().sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        torch.testing.assert_close(holder["layer"].weight.grad, twin["layer"].weight.grad.to_dense().t())
        torch.testing.assert_close(holder["layer"].bias.grad, twin["layer"].bias.grad)
        torch.testing.assert_close(memories(holder)["layer"].m, memories(twin)["layer"].m)


def test_a_converted_conv1d_is_copied_and_pickled(tmp_path):
    model, batch = build("gpt2")
    convert(model, 0.25)
    torch.save(model, tmp_path / "model.pt")
    for other in (copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)):
        torch.testing.assert_close(other(**batch).loss, model(**batch).loss)
        assert type(other.transformer.h[0].mlp.c_fc) is type(model.transformer.h[0].mlp.c_fc)


def test_weights_are_saved_and_loaded_as_transformers_does(tmp_path):
    model, batch = build("gpt2")
    convert(model, 0.25)
    model.save_pretrained(tmp_path)
    plain = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(plain.eval()(**batch).loss, model.eval()(**batch).loss)


def test_a_sample_is_a_batch_of_the_model(monkeypatch):
    model, batch = build("t5")
    monkeypatch.setattr("msbp.sparse.trial.gain", lambda layer, *_: 2.0 if layer.out_features == 64 else 0.5)
    kept = convert(model, sample=batch)
    assert set(kept) == {name for name in linear_layers(model) if name.endswith(".wi")}


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count=32):
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(2, 50, (count, 7), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[0] % 2}


def trainer(folder, model, steps, callbacks=(), save_steps=3):
    from transformers import Trainer, TrainingArguments, get_linear_schedule_with_warmup

    optimizer = optim.AdamW(model.parameters(), 1e-3)
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        save_steps=save_steps, logging_steps=2, disable_tqdm=True, seed=3,
    )  # fmt: skip
    schedule = get_linear_schedule_with_warmup(optimizer, 2, 6)
    return Trainer(
        model,
        arguments,
        train_dataset=Sentences(),
        optimizers=(optimizer, schedule),
        callbacks=list(callbacks),
    )


def test_trainer_takes_the_optimizer_and_resumes_exactly_with_the_memory(tmp_path):
    whole, _ = build("bert")
    parts, later = copy.deepcopy(whole), copy.deepcopy(whole)
    for model in (whole, parts, later):
        convert(model, 0.25, save_memory=True)
    trainer(tmp_path / "whole", whole, 6).train()
    trainer(tmp_path / "parts", parts, 6).train()
    trainer(tmp_path / "parts", later, 6).train(resume_from_checkpoint=str(tmp_path / "parts/checkpoint-3"))
    for p, q, s in zip(whole.parameters(), parts.parameters(), later.parameters(), strict=True):
        assert torch.equal(p, q) and torch.equal(p, s)
    for name, memory in memories(whole).items():
        assert memory.m.any() and torch.equal(memory.m, memories(later)[name].m)


def test_trainer_follows_a_schedule_and_logs_it(tmp_path):
    from msbp.integrations import SparseSchedule
    from msbp.integrations.transformers import SparseCallback

    model, _ = build("bert")
    convert(model, 0.25)
    run = trainer(tmp_path, model, 4, [SparseCallback(SparseSchedule(dense_steps=2, log_every=1))])
    run.train()
    logged = [entry["msbp/unpropagated"] for entry in run.state.log_history if "msbp/k" in entry]
    assert len(logged) == 4 and logged[:2] == [0.0, 0.0] and all(0 < share < 1 for share in logged[2:])
