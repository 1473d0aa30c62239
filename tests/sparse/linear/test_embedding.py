"""An embedding table that keeps its gradient as rows: equal to that of nn.Embedding."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from msbp.optim import Adam, clip_grad_norm_
from msbp.sparse import convert, fuse
from msbp.sparse.linear.embedding import RowEmbedding
from msbp.sparse.row_sparse import RowSparseGradient

IDS = torch.tensor([[3, 1, 3], [0, 5, 3]])


def pair(**settings) -> tuple[nn.Embedding, RowEmbedding]:
    """The same table twice: torch's, and ours."""
    plain = nn.Embedding(8, 4, **settings)
    return plain, RowEmbedding.adopt(copy.deepcopy(plain))


def loss(table: nn.Embedding, ids: Tensor = IDS) -> Tensor:
    return (table(ids).pow(2) * torch.arange(1.0, 5.0)).sum()


@pytest.mark.parametrize("ids", [IDS, IDS[0], IDS[0, 0], IDS.int(), IDS[:0]])
def test_the_gradient_is_that_of_torchs_own(ids):
    plain, ours = pair()
    for table in (plain, ours):
        loss(table, ids).backward()
    assert torch.equal(ours(ids), plain(ids))
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)


def test_only_the_rows_that_were_looked_up_are_stored():
    _, ours = pair()
    loss(ours).backward()
    gradient = ours.weight.grad
    assert type(gradient) is RowSparseGradient and type(ours.weight) is nn.Parameter
    assert sorted(gradient.parts()[0].tolist()) == [0, 1, 3, 5]


def test_a_padding_row_gets_no_gradient():
    plain, ours = pair(padding_idx=3)
    for table in (plain, ours):
        loss(table).backward()
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)
    assert not ours.weight.grad[3].any()


@pytest.mark.parametrize("clip", [False, True])
def test_adam_moves_every_row_as_torchs_adam_does(clip):
    """Rows that were looked up once go on by their momentum."""
    plain, ours = pair()
    optimizers = torch.optim.Adam(plain.parameters(), lr=0.1), Adam(ours.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(0)
    for _ in range(30):
        ids = torch.randint(8, (2, 2), generator=random)
        for table, optimizer in zip((plain, ours), optimizers, strict=True):
            optimizer.zero_grad()
            loss(table, ids).backward()
            if clip:
                clip_grad_norm_(table.parameters(), 0.5)
            optimizer.step()
    torch.testing.assert_close(ours.weight, plain.weight, rtol=1e-4, atol=1e-6)


def test_several_backward_passes_add_up():
    plain, ours = pair()
    for ids in (IDS, IDS[0], torch.tensor([7])):
        for table in (plain, ours):
            loss(table, ids).backward()
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)


def test_a_weight_shared_with_an_output_layer_adds_both_gradients():
    grads = []
    for table in pair():
        output = nn.Linear(4, 8, bias=False)
        output.weight = table.weight
        output(table(IDS)).pow(2).sum().backward()
        grads.append(table.weight.grad.to_dense())
    torch.testing.assert_close(*grads)


def test_autograd_grad_hooks_and_other_precisions_get_torchs_gradient():
    plain, ours = pair()
    torch.testing.assert_close(
        torch.autograd.grad(loss(ours), ours.weight), torch.autograd.grad(loss(plain), plain.weight)
    )
    seen: list[Tensor] = []
    ours.weight.register_hook(seen.append)
    loss(ours).backward()
    loss(plain).backward()
    torch.testing.assert_close(seen[0], plain.weight.grad)
    double = RowEmbedding.adopt(copy.deepcopy(plain).double())
    double.zero_grad()
    loss(double).backward()
    torch.testing.assert_close(double.weight.grad.float(), plain.weight.grad)


def test_conversion_keeps_state_dict_keys_and_supports_copies():
    plain, ours = pair()
    plain.load_state_dict(ours.state_dict())
    loss(ours).backward()
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(twin) is RowEmbedding and type(twin.weight) is nn.Parameter
        assert torch.equal(twin(IDS), ours(IDS))


def test_an_id_beyond_the_table_is_refused():
    with pytest.raises(IndexError):
        pair()[1](torch.tensor([8]))


@pytest.mark.parametrize("change", [fuse, convert])
def test_fuse_and_convert_both_keep_rows_of_trained_embeddings(change):
    net = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    fixed = nn.Embedding.from_pretrained(torch.randn(8, 4))
    model = nn.ModuleDict({"net": net, "fixed": fixed, "clipped": nn.Embedding(8, 4, max_norm=1.0)})
    model.msbp_hidden_layers = [["net.1"]]  # type: ignore[assignment]
    assert "net.0" not in change(model)
    assert [type(net[0]), type(fixed), type(model["clipped"])] == [RowEmbedding, nn.Embedding, nn.Embedding]
    net(IDS).sum().backward()
    assert len(net[0].weight.grad.parts()[0]) == 4 and net[0].weight.grad.shape == (8, 4)
