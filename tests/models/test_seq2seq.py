"""The translation model: padding has no effect, decoding agrees with training, and every method trains it."""

import copy

import pytest
import torch
from torch import nn

from msbp.models.seq2seq import Seq2Seq
from msbp.sparse import convert, fuse, memories

SOURCE = torch.tensor([[5, 4, 3, 0], [6, 3, 0, 0], [4, 5, 6, 3]])
LENGTHS = torch.tensor([3, 2, 4])
TARGET = torch.tensor([[5, 6, 3, 0, 0], [3, 0, 0, 0, 0], [4, 4, 6, 5, 3]])
GIVEN = torch.tensor([[2, 5, 6, 0, 0], [2, 0, 0, 0, 0], [2, 4, 4, 6, 5]])
BATCH = SOURCE, LENGTHS, GIVEN, TARGET

each_kind = pytest.mark.parametrize("attention", ["general", "dot", "luong_gate"])
each_direction = pytest.mark.parametrize("directions", ["sum", "concatenate"])


def network(**settings) -> Seq2Seq:
    torch.manual_seed(0)
    sizes = {"source_words": 7, "target_words": 8, "embedding": 5, "hidden": 6, "layers": 2, "dropout": 0.0}
    return Seq2Seq(**sizes | settings).double()


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def assert_close(ours, theirs, tolerance=1e-10):
    for name, grad in theirs.items():
        torch.testing.assert_close(ours[name], grad, rtol=tolerance, atol=tolerance, msg=name)


@each_kind
@each_direction
def test_a_sentences_loss_does_not_depend_on_the_padding_its_neighbours_bring(attention, directions):
    model = network(attention=attention, directions=directions).eval()
    sizes = (TARGET != 0).sum(1)
    alone = [
        model.loss(SOURCE[b : b + 1, :s], LENGTHS[b : b + 1], GIVEN[b : b + 1, :t], TARGET[b : b + 1, :t])
        for b, (s, t) in enumerate(zip(LENGTHS.tolist(), sizes.tolist(), strict=True))
    ]
    mean = (torch.stack(alone) * sizes).sum() / sizes.sum()
    torch.testing.assert_close(model.loss(*BATCH), mean)
    wider = [nn.functional.pad(t, (0, 3)) if t.dim() == 2 else t for t in BATCH]
    torch.testing.assert_close(model.loss(*wider), mean)


def test_tokens_at_padding_positions_are_not_read():
    model = network()
    model.loss(*BATCH).backward()
    target = gradients(model)
    model.zero_grad()
    filled = [torch.where(t == 0, 1, t) for t in (SOURCE, GIVEN)]
    model.loss(filled[0], LENGTHS, filled[1], TARGET).backward()
    assert_close(gradients(model), target)


@each_kind
@each_direction
def test_decoding_step_by_step_gives_the_logits_of_training(attention, directions):
    model = network(attention=attention, directions=directions).eval()
    state, right = model.encode(SOURCE, LENGTHS), []
    for given, target in zip(GIVEN.T, TARGET.T, strict=True):
        chances, state = model.step(given, state)
        right.append(chances.gather(1, target[:, None]).squeeze(1)[target != 0])
    torch.testing.assert_close(model.loss(*BATCH), -torch.cat(right).mean())


@pytest.mark.parametrize("index", [[2, 0, 1], [1, 1], [0, 0, 1, 1, 2, 2], [0, 1, 2]])
def test_selected_rows_of_a_state_continue_their_sentences(index):
    model = network().eval()
    _, state = model.step(GIVEN[:, 0], model.encode(SOURCE, LENGTHS))
    every, _ = model.step(TARGET[:, 0], state)
    some, _ = model.step(TARGET[index, 0], state.select(torch.tensor(index)))
    torch.testing.assert_close(some, every[index])


def test_rows_selected_twice_continue_the_same_sentence():
    model = network().eval()
    state = model.encode(SOURCE, LENGTHS).select(torch.tensor([0, 0, 2, 2]))
    same = state.select(torch.tensor([1, 0, 3, 3]))
    assert same.source is state.source
    left = state.select(torch.tensor([2, 3]))
    assert left.sentence.tolist() == [2, 2]
    torch.testing.assert_close(left.source.context, model.encode(SOURCE, LENGTHS).source.context[[2, 2]])


@each_kind
@each_direction
def test_full_ratio_is_torchs_own_gradient(attention, directions):
    plain = network(attention=attention, directions=directions)
    dense, full = copy.deepcopy(plain), copy.deepcopy(plain)
    fuse(dense)
    assert convert(full, r=1.0, gamma=0.8)["decoder"] == 6
    for model in (plain, dense, full):
        model.loss(*BATCH).backward()
    assert_close(gradients(dense), gradients(plain))
    assert_close(gradients(full), gradients(plain))
    assert not any(m.m.any() for m in memories(full).values())


def test_baseline_and_methods_share_every_dropout():
    dense, losses = network(dropout=0.3, embedding_dropout=0.2), []
    full = copy.deepcopy(dense)
    fuse(dense), convert(full, r=1.0, gamma=0.8)
    for model in (dense, full):
        torch.manual_seed(3)
        losses.append(model.loss(*BATCH))
        losses[-1].backward()
    assert losses[0] == losses[1] != dense.eval().loss(*BATCH)
    assert_close(gradients(full), gradients(dense))


def test_hidden_layers_are_the_gates_of_encoder_and_decoder():
    model = network(hidden=8)
    assert model.msbp_hidden_layers == [["encoder"], ["decoder"]]
    assert convert(model, r=0.25, gamma=0.5) == {"encoder": 2, "decoder": 2}
    model.loss(*BATCH).backward()
    assert set(memories(model)) == {
        *(f"encoder.l{i}{way}" for i in range(2) for way in ("", "_reverse")),
        *(f"decoder.l{i}" for i in range(2)),
    }


def test_a_tied_output_layer_has_the_gradient_of_both_uses():
    apart, tied = network(embedding=6).float(), network(embedding=6, tied=True).float()
    with torch.no_grad():
        tied.load_state_dict(apart.state_dict() | {"output.weight": apart.target_embedding.weight})
        apart.output.weight.copy_(apart.target_embedding.weight)
    convert(apart, r=1.0, gamma=0.0), convert(tied, r=1.0, gamma=0.0)
    for model in (apart, tied):
        model.loss(*BATCH).backward()
    both = apart.output.weight.grad + apart.target_embedding.weight.grad
    torch.testing.assert_close(tied.output.weight.grad, both)


def test_labels_are_smoothed_in_training_only():
    model = network(label_smoothing=0.1)
    smoothed, plain = model.train().loss(*BATCH), network().loss(*BATCH)
    assert smoothed > plain
    torch.testing.assert_close(model.eval().loss(*BATCH), plain)


def test_a_tiny_language_is_memorized():
    """The task of reversing a sentence, in words of the other language."""
    random, B = torch.Generator().manual_seed(1), 40
    lengths = torch.randint(2, 5, (B,), generator=random)
    source, target = torch.zeros(B, 4, dtype=torch.long), torch.zeros(B, 5, dtype=torch.long)
    for b, n in enumerate(lengths.tolist()):
        source[b, :n] = torch.randint(4, 12, (n,), generator=random)
        target[b, : n + 1] = torch.tensor([*source[b, :n].flip(0) + 1, 3])
    given = nn.functional.pad(target[:, :-1], (1, 0), value=2)
    torch.manual_seed(0)
    model = Seq2Seq(12, 13, embedding=24, hidden=32, layers=1, dropout=0.0)
    convert(model, r=1 / 4, gamma=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(90):
        optimizer.zero_grad()
        model.loss(source, lengths, given, target).backward()
        optimizer.step()
    with torch.no_grad():
        state, tokens, outputs = model.encode(source, lengths), torch.full((B,), 2), []
        for _ in range(5):
            chances, state = model.step(tokens, state)
            tokens = chances.argmax(1)
            outputs.append(tokens)
    right = (torch.stack(outputs, 1) == target) | (target == 0)
    assert right.all(1).float().mean() > 0.9
