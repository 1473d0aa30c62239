"""Kernels on several threads: the same numbers bit for bit, in any thread, process and order.

torch itself stays on one thread where bits are compared, because those of BLAS depend on their number.
"""

import ctypes
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor, nn

from msbp import optim
from msbp.sparse import Cube, MaxOverTime, convert, cross_entropy, fuse, look_up, memories
from msbp.sparse.kernels import parallel
from msbp.sparse.kernels.parallel import parts_of, share, spread

B, c = 64, 4
needs_openmp = pytest.mark.skipif(not parallel.OPENMP, reason="this torch has no OpenMP library")


@pytest.fixture
def kernels_on(monkeypatch):
    """Set the number of threads of the kernels alone; several are taken in turns."""

    def set_threads(*counts: int) -> None:
        turns = cycle(counts)
        monkeypatch.setattr(parallel, "threads", lambda: next(turns))

    return set_threads


def chain(activation: type[nn.Module] = nn.ReLU, sparse: bool = True, **choices) -> nn.Module:
    hidden = nn.Linear(300, 330), activation(), nn.Linear(330, 300), activation()
    model = nn.Sequential(*hidden, nn.Linear(300, c))
    if sparse:
        convert(model, r=0.1, **choices)
    else:
        fuse(model)
    return model


class Tokens(nn.Module):
    """Slots with many distinct tokens and with few, before a chain."""

    def __init__(self, sparse: bool = True):
        super().__init__()
        self.embedding = nn.Embedding(400, 50)
        self.net = nn.Sequential(nn.Linear(6 * 50, 200), nn.ReLU(), nn.Linear(200, c))
        (convert if sparse else fuse)(self.net)

    def forward(self, x: Tensor) -> Tensor:
        tokens = (x[:, :6].abs() * torch.tensor([200, 200, 2, 2, 200, 2])).long().clamp(max=399)
        return look_up(self.embedding, self.net, tokens)


class Rows(nn.Module):
    """An embedding of its own."""

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Embedding(50, 64), nn.Flatten(), nn.Linear(64 * 20, c))
        fuse(self.model)

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x[:, :20].abs() * 10).long().clamp(max=49))


class Sequences(nn.Module):
    """A bidirectional LSTM with H units, over 10 time steps of 30 inputs."""

    def __init__(self, H: int = 90, sparse: bool = True, **choices):
        super().__init__()
        self.lstm, self.out = nn.LSTM(30, H, bidirectional=True, batch_first=True), nn.Linear(2 * H, c)
        if sparse:
            convert(self, r=0.1, layers=["lstm"], **choices)
        else:
            fuse(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x.view(B, 10, 30))[0].mean(1))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 40, 3), nn.Linear(40, c)
        convert(self, r=0.1, layers=["conv"])

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.conv(x.view(B, 3, 10, 10)).flatten(2).mean(2).relu())


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = MaxOverTime(30, 80, 3), nn.Linear(80, c)
        convert(self, r=0.1, layers=["conv"])

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.conv(x.view(-1, 30), torch.arange(10 * B), torch.arange(0, 10 * B + 1, 10)))


MODELS = {
    "chain": chain,
    "chain with a memory per slot": lambda: chain(memory="per_slot"),
    "chain with a sequential memory": lambda: chain(memory="sequential"),
    "chain without memory": lambda: chain(gamma=0.0),
    "unified chain": lambda: chain(selection="unified"),
    "chain with the full gradient of biases": lambda: chain(bias="full"),
    "chain with tanh": lambda: chain(nn.Tanh),
    "chain with cubes": lambda: chain(Cube),
    "dense chain": lambda: chain(sparse=False),
    "embedding and chain": Tokens,
    "embedding and dense chain": lambda: Tokens(sparse=False),
    "embedding": Rows,
    "LSTM": Sequences,
    "LSTM with a memory per slot": lambda: Sequences(memory="per_slot"),
    "LSTM with a sequential memory": lambda: Sequences(memory="sequential"),
    "LSTM without memory": lambda: Sequences(gamma=0.0),
    "LSTM with a memory by batch": lambda: Sequences(carry="batch"),
    "LSTM with joint gates": lambda: Sequences(gates="joint"),
    "LSTM with the full gradient of biases": lambda: Sequences(bias="full"),
    "dense LSTM": lambda: Sequences(sparse=False),
    "convolution": Images,
    "maximum over time": Sentences,
}
OPTIMIZERS = {
    "Adam": lambda parameters: optim.Adam(parameters, 1e-2),
    "AdamW": lambda parameters: optim.AdamW(parameters, 1e-2),
    "SGD": lambda parameters: optim.SGD(parameters, 0.1),
    "SGD with momentum": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
}


def train(build=chain, optimizer=OPTIMIZERS["Adam"], steps: int = 4) -> dict[str, Tensor]:
    """Losses, weights and memories after a few steps; some columns of the input are zero, and some rows."""
    torch.manual_seed(0)
    model = build()
    generator, losses = torch.Generator().manual_seed(1), []
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.1)
    update = optimizer(model.parameters())
    for _ in range(steps):
        x, y = torch.randn(B, 300, generator=generator), torch.randint(c, (B,), generator=generator)
        x[:, ::2] = 0
        x[::7] = 0
        update.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        update.step()
        losses.append(loss.detach())
    state = {name: p.detach() for name, p in model.named_parameters()}
    return {"losses": torch.stack(losses), **state, **{f"m of {n}": m.m for n, m in memories(model).items()}}


def assert_equal(results: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert results.keys() == expected.keys()
    assert not [name for name in expected if not torch.equal(results[name], expected[name])]


@needs_openmp
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_layer_gives_the_same_on_any_number_of_threads(build, kernels_on):
    kernels_on(1)
    expected = train(build)
    for counts in [(2,), (3,), (1, 3, 2)]:
        kernels_on(*counts)
        assert_equal(train(build), expected)


@needs_openmp
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("build", [chain, Tokens])
def test_an_optimizer_gives_the_same_on_any_number_of_threads(build, optimizer, kernels_on):
    kernels_on(1)
    expected = train(build, optimizer)
    for count in (2, 3):
        kernels_on(count)
        assert_equal(train(build, optimizer), expected)


@needs_openmp
def test_dropout_is_the_same_on_any_number_of_threads(kernels_on):
    model, outputs = nn.Sequential(nn.Linear(300, 330), nn.ReLU(), nn.Dropout(0.5), nn.Linear(330, 300)), []
    fuse(model)
    for count in (1, 2, 3):
        kernels_on(count)
        torch.manual_seed(0)
        outputs.append(model(torch.ones(B, 300)))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


@needs_openmp
def test_a_gradient_that_is_not_finite_is_propagated_whole_on_any_number_of_threads(kernels_on):
    for count in (1, 2):
        kernels_on(count)
        model, x = chain(), torch.randn(B, 300)
        x[B // 2] = torch.nan
        model(x).square().sum().backward()
        assert model[0].weight.grad.isnan().any()
        assert not any(memory.m.any() for memory in memories(model).values())


@needs_openmp
def test_a_token_that_is_not_in_the_table_is_an_error_on_any_number_of_threads(kernels_on):
    for count in (1, 2):
        kernels_on(count)
        model, tokens = Tokens(), torch.zeros(3 * B, 6, dtype=torch.long)
        tokens[-1, -1] = 400
        with pytest.raises(IndexError, match="token 400"):
            look_up(model.embedding, model.net, tokens)


@needs_openmp
def test_python_threads_may_run_kernels_at_once(kernels_on):
    kernels_on(1)
    builds = [chain, Tokens, Sequences] * 2
    expected = [train(build) for build in builds]
    kernels_on(2)
    with ThreadPoolExecutor(len(builds)) as pool:
        for results, reference in zip(pool.map(train, builds), expected, strict=True):
            assert_equal(results, reference)


def threads_of_a_worker(_: object) -> tuple[int, dict[str, Tensor]]:
    threads = parallel.threads()
    torch.set_num_threads(
        1
    )  # as loaders of torch do: its own operators would wait for threads that are not there
    return threads, {name: value.clone() for name, value in train().items()}


@needs_openmp
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_have_one_thread_and_the_numbers_of_their_parent():
    before = torch.get_num_threads()
    expected = train()
    try:
        torch.set_num_threads(2)
        assert parallel.threads() == 2
        assert_close(train(), expected)  # its threads have begun
        with multiprocessing.get_context("fork").Pool(2) as pool:
            workers = pool.map(threads_of_a_worker, range(2))
        assert_close(train(), expected)  # and go on
    finally:
        torch.set_num_threads(before)
    for threads, results in workers:
        assert threads == 1
        assert_close(results, expected)


def assert_close(results: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(results[name], value, rtol=1e-3, atol=1e-4)


def test_without_an_openmp_library_there_is_one_thread(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(parallel, "OPENMP", 0)
    try:
        torch.set_num_threads(2)
        assert parallel.threads() == 1
        train(steps=1)
    finally:
        torch.set_num_threads(before)


def test_a_library_without_the_openmp_function_is_not_used(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert parallel.find_openmp() == 0


@njit(nogil=True)
def count_part(job, part, parts):
    counts, total = job
    start, stop = share(part, parts, counts.size, 3)
    counts[start:stop] += 1
    total[part] = parts


@njit(nogil=True)
def count_all(counts, total, parts, threads):
    spread(count_part, (counts, total), parts, threads)


@needs_openmp
@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("parts", [1, 2, 5, 12])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_part_of_a_parallel_loop_runs_once(size, parts, threads):
    for _ in range(20):
        counts, total = np.zeros(size, np.int64), np.zeros(parts, np.int64)
        count_all(counts, total, parts, threads)
        assert (counts == 1).all() and (total == parts).all()


@njit(nogil=True)
def fail_part(job, part, parts):
    if part == job[0]:
        raise ValueError("not a number of a part")


@njit(nogil=True)
def fail(which, threads):
    spread(fail_part, (which,), 4, threads)


@needs_openmp
@pytest.mark.parametrize("threads", [1, 2])
def test_a_part_that_fails_is_an_error(threads):
    fail(7, threads)
    with pytest.raises(MemoryError):
        fail(2, threads)


@njit(nogil=True)
def halve_part(job, part, parts):
    job[0][part] *= np.float32(0.5)


@njit(nogil=True)
def halve(values, threads):
    spread(halve_part, (values,), values.size, threads)


@needs_openmp
@pytest.mark.skipif(not parallel.X86, reason="other processors keep the mode in which a thread begins")
def test_threads_flush_subnormal_numbers_if_the_calling_thread_does():
    tiny = np.full(64, np.finfo(np.float32).tiny)
    for flush in (False, True, False):
        torch.set_flush_denormal(flush)
        for threads in (1, 2):
            values = tiny.copy()
            halve(values, threads)
            assert (values == 0).all() if flush else (values > 0).all()


def test_a_small_loop_is_not_divided():
    assert parts_of(1, 100, 1 << 30) == 1
    assert parts_of(2, 100, parallel.ENOUGH - 1) == 1
    assert parts_of(2, 100, parallel.ENOUGH) == 2 * parallel.PARTS
    assert parts_of(2, 3, parallel.ENOUGH) == 3
