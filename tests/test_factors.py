"""Gradients of large layers from factors: the weights are those of autograd, whatever a use."""

import pytest
import torch
from conftest import optimizer_maker
from torch import nn
from torch.nn import functional

from allcores.parallel import factors, launch
from allcores.strategies import shared_memory
from allcores.strategies.shared_memory import SharedMemory

MOMENTUM = optimizer_maker("SGD", lr=0.1, momentum=0.9)
ROWS = 5  # of worker 0; of the others one less


class Model(nn.Module):
    """A small layer, and a large one that is used as a way says."""

    def __init__(self, way):
        super().__init__()
        self.way, self.steps = way, 0
        self.small, self.large = nn.Linear(7, 200), nn.Linear(200, 200, bias=way != "no bias")
        if way == "tied":
            self.other = nn.Linear(200, 200)
            self.other.weight = self.large.weight
        if way == "frozen":
            self.small.requires_grad_(False)
            self.large.bias.requires_grad_(False)
        if way == "computed":
            self.large = nn.utils.weight_norm(self.large)
        if way == "hooked":
            self.large.weight.register_hook(lambda gradient: gradient / 2)

    def forward(self, images):
        self.steps += 1
        hidden = self.small(images)
        if self.way == "twice":
            hidden = self.large(hidden)
        if self.way == "sequence":
            hidden = torch.stack([hidden, 2 * hidden], dim=1)
        if self.way == "more and more":
            hidden = hidden.repeat(self.steps**3, 1)
        scores = self.large(input=hidden.relu_())
        if self.way == "tied":
            scores = self.other(scores)
        if self.way == "elsewhere":
            scores = scores @ self.large.weight
        if self.way == "elsewhere, later":
            scores = scores + (self.steps > 2) * functional.linear(hidden, self.large.weight)
        if self.way == "not at first":
            scores = scores * (self.steps > 2) + hidden
        if self.way == "no gradient":
            scores = scores.detach() + hidden
        return scores


WAYS = (
    *("once", "sequence", "twice", "tied", "elsewhere", "elsewhere, later", "no gradient"),
    *("not at first", "no bias", "frozen", "computed", "hooked", "more and more"),
)


def loss_of(model, images):
    return model(images).square().mean()


def train(world, strategy, steps):
    for step in steps:
        torch.manual_seed(10 * step + world.rank)
        loss_of(strategy.model, torch.randn(ROWS - (world.rank > 0), 7)).backward()
        strategy.step(0.1)


@pytest.fixture
def small(monkeypatch):
    """Layers are large and blocks full with few weights; a row and a block have no common edges."""
    monkeypatch.setattr(factors, "FEWEST_WEIGHTS", 40_000)
    monkeypatch.setattr(shared_memory, "BLOCK_BYTES", 4 * 528)


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_with_factors_the_weights_are_those_of_autograd(tmp_path, small, way, workers):
    def target(world):
        torch.manual_seed(0)
        strategy = SharedMemory(Model(way), MOMENTUM, world)
        assert len(strategy.factors) == (way not in ("computed", "hooked"))
        train(world, strategy, range(4))
        torch.save(strategy.module.state_dict(), tmp_path / str(world.rank))

    launch.run_ranks(target, workers, 0, 1, once_forked=int)
    found = [torch.load(tmp_path / str(rank)) for rank in range(workers)]

    torch.manual_seed(0)
    model = Model(way)
    optimizer = MOMENTUM(model.parameters())
    for step in range(4):
        for rank in range(workers):
            model.steps = step
            torch.manual_seed(10 * step + rank)
            (loss_of(model, torch.randn(ROWS - (rank > 0), 7)) / workers).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, expected in model.state_dict().items():
        for weights in found:
            torch.testing.assert_close(weights[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "dtype", "used"),
    [(25, torch.float32, True), (26, torch.float32, False), (5, torch.bfloat16, False)],
)
def test_what_is_left_to_autograd(small, rows, dtype, used):
    """More samples than make half of the product, and layers that compute in bfloat16."""

    def target(world):
        strategy = SharedMemory(Model("once"), MOMENTUM, world)
        (found,) = strategy.factors.values()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = loss_of(strategy.model, torch.randn(rows, 7))
        loss.backward()
        assert found.rows == rows * used
        strategy.step(0.1)
        assert found.with_rest == [] if used else [0, 1]

    launch.run_ranks(target, 2, 0, 1, once_forked=int)


@pytest.mark.parametrize("way", ["once", "not at first", "more and more"])
def test_a_resumed_run_ends_with_the_same_bits(small, way):
    def target(world):
        whole, resumed = (SharedMemory(Model(way), MOMENTUM, world) for _ in range(2))
        train(world, whole, range(3))
        resumed.restore(world.broadcast(whole.state()))
        resumed.model.steps = 3
        for strategy in (whole, resumed):
            train(world, strategy, range(3, 6))
        assert torch.equal(whole.flat.weights, resumed.flat.weights)

    launch.run_ranks(target, 2, 0, 1, once_forked=int)
