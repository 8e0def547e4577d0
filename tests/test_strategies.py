"""The promises of every file in strategies/, held by real processes."""

import dataclasses
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import DDP, MOBILENET, RUN, same_weights, vary

from allcores import launch, registry
from allcores.run import Choice

ALL = {name: Choice(name, name, {}) for name in registry.strategies()}
SYNCHRONOUS = [DDP]
OPTIMIZERS = {
    "sgd": Choice("SGD", "SGD", {"lr": 0.05}),
    "momentum": Choice("SGD", "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": Choice("Adam", "Adam", {"lr": 0.01}),
}


@pytest.mark.parametrize("strategy", ALL.values(), ids=ALL)
@pytest.mark.parametrize("model", [RUN.model, MOBILENET], ids=["mlp", "mobilenet"])
def test_with_one_worker_every_strategy_equals_serial(laboratory, strategy, model):
    _, serial = laboratory.conduct(vary(model=model), "serial")
    _, other = laboratory.conduct(vary(model=model, strategy=strategy), "other")
    assert same_weights(serial, other)


@pytest.mark.parametrize("strategy", SYNCHRONOUS, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_synchronous_strategies_follow_the_serial_trajectory(
    laboratory, strategy, workers, optimizer
):
    # 53 samples in batches of 10: a last batch of 3 leaves workers without a sample. 24 steps.
    run = vary(optimizer=optimizer, epochs=4)
    serial_metrics, serial = laboratory.conduct(run, "serial")
    metrics, other = laboratory.conduct(vary(run, strategy=strategy, workers=workers), "other")
    for name, weights in serial.items():
        assert torch.linalg.norm(other[name] - weights) <= 1e-5 * torch.linalg.norm(weights)
    for mine, theirs in zip(metrics["epochs"], serial_metrics["epochs"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def weights_after_each_step(strategy_name, folder, world):
    """Three steps on gradients that differ between the ranks."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    strategy = registry.strategies()[strategy_name].load()(
        model, torch.optim.SGD(model.parameters(), lr=0.1), world
    )
    torch.manual_seed(world.rank + 1)
    steps = []
    for _ in range(3):
        strategy.model(torch.randn(5, 4)).square().sum().backward()
        strategy.step(0.1)
        assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
        steps.append(torch.cat([p.detach().flatten() for p in model.parameters()]).clone())
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    strategy.settle()
    torch.save((steps, before, dict(model.named_buffers())), folder / f"{world.rank}.pt")


@pytest.mark.parametrize("strategy", SYNCHRONOUS, ids=lambda strategy: strategy.name)
def test_workers_hold_equal_weights_after_each_step_and_equal_buffers_when_settled(
    tmp_path, strategy
):
    launch.run_ranks(
        partial(weights_after_each_step, strategy.name, tmp_path), 3, 0, 1, once_forked=int
    )
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    for steps, _, settled in ranks[1:]:
        assert all(map(torch.equal, steps, ranks[0][0]))
        assert same_weights(settled, ranks[0][2])
    assert not torch.equal(ranks[0][0][0], ranks[0][0][1])
    means = [before["1.running_mean"] for _, before, _ in ranks]
    assert not torch.equal(means[0], means[1]), "each worker has statistics of its own shards"
    torch.testing.assert_close(ranks[0][2]["1.running_mean"], torch.stack(means).mean(dim=0))


def test_ddp_reports_what_it_spends_on_communication(laboratory):
    metrics, _ = laboratory.conduct(vary(strategy=DDP, workers=2))
    phases = metrics["epochs"][0]["phases"]
    assert set(phases) == {"data", "compute", "communicate", "update", "wait"}
    assert all(seconds > 0 for seconds in phases.values())


def test_more_workers_than_cores_is_slow_and_not_stuck(laboratory):
    metrics, _ = laboratory.conduct(vary(strategy=DDP, workers=8, epochs=1))
    assert metrics["epochs"][0]["loss"] > 0


ENDLESS = vary(epochs=100_000, dataset=dataclasses.replace(RUN.dataset))


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def started(laboratory, run):
    """A training process whose ranks have made a few steps."""
    process = laboratory.train(run)
    wait_for(lambda: (laboratory.work("run") / "latest.pt").exists())
    ranks = children(process.pid)
    assert len(ranks) == run.workers + run.servers
    return process, ranks


@pytest.mark.parametrize("strategy", ALL.values(), ids=ALL)
def test_a_killed_rank_ends_the_run_with_its_name(laboratory, strategy):
    one_worker = registry.strategies()[strategy.name].constants.get("one_worker")
    workers = 1 if one_worker else 3
    process, ranks = started(laboratory, vary(ENDLESS, strategy=strategy, workers=workers))
    victim = random.randrange(workers)
    time.sleep(random.random() / 2)
    os.kill(ranks[victim], signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - killed < 5
    assert process.returncode == 1
    assert (
        f"worker {victim} (rank {victim}) (process {ranks[victim]}) was killed by SIGKILL" in output
    )
    assert not any(map(alive, ranks))


def test_killing_the_training_program_leaves_nothing(laboratory):
    process, ranks = started(laboratory, vary(ENDLESS, strategy=DDP, workers=2))
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(alive, ranks)), seconds=5)


def test_ctrl_c_ends_all_and_says_how_to_go_on(laboratory):
    process, ranks = started(laboratory, vary(ENDLESS, strategy=DDP, workers=2))
    for pid in [process.pid, *ranks]:  # as a terminal does: to the whole foreground group
        os.kill(pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the same call goes on after the last whole epoch" in output
    assert "Traceback" not in output
    assert not any(map(alive, ranks))


def test_twenty_runs_side_by_side_do_not_collide(laboratory):
    laboratory.data()
    strategies = [RUN.strategy, DDP, DDP, ALL["data_parallel"]] * 5
    processes = [
        laboratory.train(
            vary(strategy=strategy, workers=2 if strategy is DDP else 1, seed=number),
            f"run{number}",
        )
        for number, strategy in enumerate(strategies)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
