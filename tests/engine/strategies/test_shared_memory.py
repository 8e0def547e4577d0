"""Shared memory where its slices have many blocks, and what it keeps."""

import copy

import pytest
import torch
from conftest import optimizer_maker

from allcores.parallel import launch
from allcores.strategies import shared_memory
from allcores.strategies.shared_memory import SharedMemory

OPTIMIZERS = {
    "momentum": optimizer_maker("SGD", lr=0.1, momentum=0.9, dampening=0.5),
    "amsgrad": optimizer_maker("Adam", lr=0.1, amsgrad=True),
    "rprop": optimizer_maker("Rprop", lr=0.1),
}


def train(strategy, rank, steps):
    """So many steps on inputs that depend on rank and step."""
    for step in steps:
        torch.manual_seed(10 * step + rank)
        strategy.model(torch.randn(5, 7)).square().sum().backward()
        strategy.step(0.1)


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_training_goes_on_from_a_saved_state(tmp_path, monkeypatch, make_optimizer, workers):
    monkeypatch.setattr(shared_memory, "BLOCK_BYTES", 64)  # a cache line: 3 blocks

    def target(world):
        torch.manual_seed(0)
        strategies = [
            SharedMemory(model, make_optimizer, world)
            for model in (torch.nn.Linear(7, 3), torch.nn.Linear(7, 3))
        ]
        # 21 + 3 weights are three cache lines, each of which is a block.
        assert len(strategies[0].blocks) == 3 // workers + (world.rank < 3 % workers)
        train(strategies[0], world.rank, range(3))
        state = world.broadcast(copy.deepcopy(strategies[0].state()))
        train(strategies[0], world.rank, range(3, 6))
        strategies[1].restore(state)
        train(strategies[1], world.rank, range(3, 6))
        whole, resumed = (strategy.flat.weights for strategy in strategies)
        assert torch.equal(whole, resumed)
        weights = [parameter.detach().flatten() for parameter in strategies[0].flat.parameters]
        torch.save(torch.cat(weights), tmp_path / str(world.rank))

    launch.run_ranks(target, workers, 0, 1)
    weights = [torch.load(tmp_path / str(rank)) for rank in range(workers)]
    assert all(torch.equal(rank_weights, weights[0]) for rank_weights in weights)

    model = torch.nn.Linear(7, 3)
    torch.manual_seed(0)
    model.reset_parameters()
    optimizer = make_optimizer(model.parameters())
    for step in range(6):
        for rank in range(workers):
            torch.manual_seed(10 * step + rank)
            (model(torch.randn(5, 7)).square().sum() / workers).backward()
        optimizer.step()
        optimizer.zero_grad()
    expected = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    torch.testing.assert_close(weights[0], expected, rtol=1e-5, atol=1e-6)


def test_fewer_weights_than_workers():
    def target(world):
        model = torch.nn.Linear(1, 2, bias=False)
        strategy = SharedMemory(model, OPTIMIZERS["momentum"], world)
        before = model.weight.clone()
        model(torch.ones(1, 1)).sum().backward()
        strategy.step(0.5)
        torch.testing.assert_close(model.weight, before - 0.5)

    launch.run_ranks(target, 3, 0, 1)
