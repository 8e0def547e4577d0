"""Gradients of large layers from factors: where they are used, and that they are the same."""

from functools import partial

import pytest
import torch
from torch import nn

from allcores.parallel import factors, launch
from allcores.strategies import shared_memory
from allcores.strategies.shared_memory import SharedMemory

MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ROWS = 5  # of worker 0; of the others one less


class Model(nn.Module):
    """A small layer, and a large one that is used as a way says."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.small, self.large = nn.Linear(7, 200), nn.Linear(200, 200, bias=way != "no bias")
        if way == "tied":
            self.other = nn.Linear(200, 200)
            self.other.weight = self.large.weight

    def forward(self, images):
        hidden = self.small(images)
        if self.way == "twice":
            hidden = self.large(hidden)
        if self.way == "sequence":
            hidden = torch.stack([hidden, 2 * hidden], dim=1)
        scores = self.large(hidden.relu_())
        if self.way == "tied":
            scores = self.other(scores)
        if self.way == "elsewhere":
            scores = scores @ self.large.weight
        return scores.detach() + hidden if self.way == "no gradient" else scores


def loss_of(model, images):
    return model(images).square().mean()


def train(world, way, steps, used):
    torch.manual_seed(0)
    model = Model(way)
    strategy = SharedMemory(model, MOMENTUM, world)
    for step in range(steps):
        torch.manual_seed(10 * step + world.rank)
        loss_of(strategy.model, torch.randn(ROWS - (world.rank > 0), 7)).backward()
        strategy.step(0.1)
        assert [each.used for each in strategy.factors.values()] == used
    return model


@pytest.fixture
def small(monkeypatch):
    """Layers are large and blocks full with few weights; a row and a block have no common edges."""
    monkeypatch.setattr(factors, "FEWEST_WEIGHTS", 40_000)
    monkeypatch.setattr(shared_memory, "BLOCK_BYTES", 4 * 528)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    ("way", "used"),
    [
        ("once", [True]),
        ("sequence", [True]),
        ("twice", [True]),
        ("tied", [False]),
        ("elsewhere", [False]),
        ("no gradient", [False]),
        ("no bias", []),
    ],
)
def test_with_factors_the_weights_are_those_of_autograd(tmp_path, small, way, used, workers):
    def target(world):
        model = train(world, way, steps=4, used=used)
        torch.save(model.state_dict(), tmp_path / str(world.rank))

    launch.run_ranks(target, workers, 0, 1, once_forked=int)
    found = [torch.load(tmp_path / str(rank)) for rank in range(workers)]

    torch.manual_seed(0)
    model = Model(way)
    optimizer = MOMENTUM(model.parameters())
    for step in range(4):
        for rank in range(workers):
            torch.manual_seed(10 * step + rank)
            (loss_of(model, torch.randn(ROWS - (rank > 0), 7)) / workers).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, expected in model.state_dict().items():
        for weights in found:
            torch.testing.assert_close(weights[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_lower_precision_are_left_to_autograd(small, dtype):
    def target(world):
        strategy = SharedMemory(Model("once"), MOMENTUM, world)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = loss_of(strategy.model, torch.randn(ROWS, 7))
        loss.backward()
        strategy.step(0.1)
        (found,) = strategy.factors.values()
        assert found.used == (dtype == torch.float32)

    launch.run_ranks(target, 2, 0, 1, once_forked=int)


def test_many_samples_are_left_to_autograd(small, monkeypatch):
    """Then the factors are not less than half of their product."""
    monkeypatch.setattr("test_factors.ROWS", 26)  # 2 x 26 x 400 numbers, of 40,000

    def target(world):
        train(world, "once", steps=2, used=[world.workers < 2])

    for workers in (1, 2):
        launch.run_ranks(target, workers, 0, 1, once_forked=int)


def test_a_resumed_run_ends_with_the_same_bits(small):
    def target(world):
        whole, resumed = (SharedMemory(Model("once"), MOMENTUM, world) for _ in range(2))
        for step in range(6):
            if step == 3:
                resumed.restore(world.broadcast(whole.state()))
            for strategy in [whole, resumed] if step >= 3 else [whole]:
                torch.manual_seed(10 * step + world.rank)
                loss_of(strategy.model, torch.randn(ROWS, 7)).backward()
                strategy.step(0.1)
        assert torch.equal(whole.flat.weights, resumed.flat.weights)

    launch.run_ranks(target, 2, 0, 1, once_forked=int)
