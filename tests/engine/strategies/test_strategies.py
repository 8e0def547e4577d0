"""The promises of every file in strategies/, held by real processes."""

import contextlib
import os
import random
import re
import signal
import time
from functools import partial
from pathlib import Path

import patience
import pytest
import torch
from conftest import (
    DDP,
    LENET,
    RUN,
    optimizer_maker,
    same_weights,
    save_after_each_epoch,
    using,
    vary,
)
from patience import wait_for

from allcores.parallel import launch
from allcores.parallel.reports import RankFailedError
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.training.checkpoints import Checkpoints

ALL = {name: Entry(name, name, {}) for name in registry.strategies()}
# There is no GPU where the tests run; the way there and back is the same.
ALL["accelerator"] = Entry("accelerator", "accelerator", {"device": "cpu"})


def promises(name):
    return registry.strategies()[name].constants.get("equals_serial")


def is_asynchronous(entry):
    return registry.strategies()[entry.name].constants.get("asynchronous", False)


# Those that promise serial training's weights with any number of workers, by themselves or as told.
SYNCHRONOUS = {name: entry for name, entry in ALL.items() if promises(name) == "always"} | {
    "two_servers": Entry("two_servers", "parameter_server", {"servers": 2}),
    "local_sgd_1": Entry("local_sgd_1", "local_sgd", {"every": 1}),
    "ddp_shm": Entry("ddp_shm", "ddp", {"backend": "shm"}),
    "local_sgd_shm": Entry("local_sgd_shm", "local_sgd", {"every": 1, "backend": "shm"}),
    "post_local_sgd": Entry("post_local_sgd", "local_sgd", {"every": 100, "post_local": 100}),
}
# What else strategies can be told.
VARIANTS = {
    "hogwild_locked": Entry("hogwild_locked", "hogwild", {"locked": True}),
    "two_async_servers": Entry("two_async_servers", "async_parameter_server", {"servers": 2}),
}
RARELY = Entry("async_rarely", "async_parameter_server", {"n_push": 3, "n_pull": 2})
# Those that round what they send.
LOSSY = {
    "ddp_fp16": Entry("ddp_fp16", "ddp", {"hook": "fp16"}),
    "ddp_bf16": Entry("ddp_bf16", "ddp", {"hook": "bf16"}),
}
OPTIMIZERS = {
    "sgd": Entry("SGD", "SGD", {"lr": 0.05}),
    "momentum": Entry("SGD", "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": Entry("Adam", "Adam", {"lr": 0.01}),
    "adamw": Entry("AdamW", "AdamW", {"lr": 0.01, "weight_decay": 0.1}),
}


def by_strategy(strategies):
    return pytest.mark.parametrize("strategy", strategies.values(), ids=strategies)


def close(mine, theirs, relative=1e-5):
    return all(
        torch.linalg.norm(mine[name] - weights) <= relative * torch.linalg.norm(weights)
        for name, weights in theirs.items()
    )


def plain_steps(model, forward, step):
    """Six steps of a net on batches of random numbers."""
    torch.manual_seed(1)
    for _ in range(6):
        forward(torch.randn(5, 4)).square().sum().backward()
        step()


def small_net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def train_alone(strategy, file, world):
    model = small_net()
    make_optimizer = optimizer_maker("SGD", lr=0.1, momentum=0.9)
    make = registry.strategies()[strategy.name].load()
    strategy = make(model, make_optimizer, world, **strategy.options)
    if world.is_server:
        return strategy.serve()
    plain_steps(model, strategy.model, lambda: strategy.step(0.1))
    strategy.synchronize()
    strategy.close()
    torch.save(model.state_dict(), file)


@by_strategy({n: entry for n, entry in ALL.items() if promises(n)} | SYNCHRONOUS | VARIANTS)
def test_with_one_worker_a_strategy_computes_what_torch_does(tmp_path, strategy):
    run = using(strategy, 1)
    target = partial(train_alone, strategy, tmp_path / "weights")
    launch.run_ranks(target, 1, run.servers, 1)
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    plain_steps(model, model, step)
    assert same_weights(torch.load(tmp_path / "weights"), model.state_dict())


def tells_where_its_time_goes(strategy, metrics):
    """In phases of its own beside those of the loop."""
    source = registry.strategies()[strategy.name].file.read_text()
    # A server's own phases are not recorded.
    own_phases = set(re.findall(r'clock\.enter\("(\w+)"\)', source.partition("def serve")[0]))
    phases = {phase for epoch in metrics["epochs"] for phase in epoch["phases"]}
    return phases > {"data", "compute", "wait"} and phases >= own_phases - {
        "update",
        "across_nodes",
    }


@by_strategy(SYNCHRONOUS)
@pytest.mark.parametrize(
    ("workers", "optimizer"),
    [(3, "momentum"), (5, "adam")],
)
def test_synchronous_strategies_follow_the_serial_trajectory(
    laboratory, reference, strategy, workers, optimizer
):
    optimizer = OPTIMIZERS[optimizer]
    if strategy.name == "local_sgd" and optimizer.name.startswith("Adam"):
        pytest.skip("an average of Adam's updates is not Adam's update of the average")
    # 53 samples in batches of 10: a last batch of 3 leaves workers without a sample. 24 steps.
    run = vary(optimizer=optimizer, epochs=4)
    serial_metrics, serial = reference(run)
    metrics, other = laboratory.trained(using(strategy, workers, run), "other")
    assert close(other, serial)
    assert tells_where_its_time_goes(strategy, metrics)
    for mine, theirs in zip(metrics["epochs"], serial_metrics["epochs"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


@by_strategy({name: ALL[name] for name in ("ring", "parameter_server", "shared_memory")})
@pytest.mark.parametrize("workers", [3])
def test_one_vector_serves_weights_that_lie_channels_last(laboratory, reference, strategy, workers):
    run = vary(model=LENET, memory_format="channels_last")
    _, serial = reference(run)
    _, other = laboratory.trained(using(strategy, workers, run), "other")
    assert other["0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert close(other, serial)


class Branches(torch.nn.Module):
    """Reaches one of two layers at a time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)])

    def forward(self, step, images):
        return self.layers[step % 2](images)


def take_branches(strategy, file, world):
    model = Branches()
    make = registry.strategies()[strategy.name].load()
    strategy = make(model, optimizer_maker("SGD", lr=0.1), world)
    if world.is_server:
        return strategy.serve()
    for step in range(4):
        strategy.model(step, torch.ones(5, 4)).square().sum().backward()
        strategy.step(0.1)
    strategy.close()
    if world.rank == 0:
        torch.save(model.state_dict(), file)


@by_strategy({name: ALL[name] for name in ("serial", "ring", "parameter_server", "shared_memory")})
def test_weights_that_a_step_does_not_reach_stay(tmp_path, strategy):
    run = using(strategy, 2)
    target = partial(take_branches, strategy, tmp_path / "weights")
    launch.run_ranks(target, run.workers, run.servers, 1)
    expected = Branches()
    for step in range(4):
        expected(step, torch.ones(5, 4)).square().sum().backward()
        for parameter in expected.layers[step % 2].parameters():
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
    assert close(torch.load(tmp_path / "weights"), expected.state_dict())


@by_strategy(LOSSY)
def test_communication_hooks_round_a_little(laboratory, reference, strategy):
    _, serial = reference(RUN)
    _, other = laboratory.trained(using(strategy, 2), "other")
    assert close(other, serial, relative=0.2)
    assert not close(other, serial)


def weights_after_each_step(strategy, folder, world):
    """Three steps on gradients that differ between the ranks."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("mask", torch.full((3, 3), torch.finfo(torch.float32).min).triu(1))
    model.register_buffer("seen", torch.tensor(float(world.rank)))
    make = registry.strategies()[strategy.name].load()
    strategy = make(model, optimizer_maker("SGD", lr=0.1), world, **strategy.options)
    if world.is_server:
        return strategy.serve()
    torch.manual_seed(world.rank + 1)
    steps = []
    for _ in range(3):
        strategy.model(torch.randn(5, 4)).square().sum().backward()
        strategy.step(0.1)
        assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
        steps.append(torch.cat([p.detach().flatten() for p in model.parameters()]).clone())
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    strategy.synchronize()
    strategy.close()
    torch.save((steps, before, model.state_dict()), folder / f"{world.rank}.pt")


def ranks_of(strategy, folder):
    """What the three workers of a strategy have seen in weights_after_each_step."""
    run = using(strategy, 3)
    target = partial(weights_after_each_step, strategy, folder)
    launch.run_ranks(target, run.workers, run.servers, 1)
    return [torch.load(folder / f"{rank}.pt") for rank in range(3)]


WITH_WORKERS = {
    name: entry
    for name, entry in (ALL | VARIANTS | SYNCHRONOUS).items()
    if using(entry, 2).workers == 2
}


@by_strategy(WITH_WORKERS)
def test_workers_hold_equal_weights_and_averaged_buffers_when_synchronized(tmp_path, strategy):
    ranks = ranks_of(strategy, tmp_path)
    first, *others = [steps for steps, _, _ in ranks]
    if strategy.label in SYNCHRONOUS:  # they also do after each step
        assert all(map(torch.equal, steps, first) for steps in others)
        assert not torch.equal(first[0], first[1])
    for _, _, synchronized in ranks[1:]:
        assert same_weights(synchronized, ranks[0][2])
    means = [before["1.running_mean"] for _, before, _ in ranks]
    assert not torch.equal(means[0], means[1]), "each worker has statistics of its own shards"
    _, before, synchronized = ranks[0]
    torch.testing.assert_close(synchronized["1.running_mean"], torch.stack(means).mean(dim=0))
    for name in ("mask", "seen"):  # no statistics: those of the first
        assert torch.equal(synchronized[name], before[name])


@by_strategy({name: entry for name, entry in ALL.items() if name not in SYNCHRONOUS})
def test_more_workers_than_cores_is_slow_and_not_stuck(laboratory, strategy):
    """As those that promise serial training's weights show by them."""
    metrics, _ = laboratory.trained(using(strategy, 5, epochs=8))
    first, *later = [epoch["loss"] for epoch in metrics["epochs"]]
    assert len(later) == 7
    assert tells_where_its_time_goes(strategy, metrics)
    if promises(strategy.name):  # with another rule of updating this learning rate may not do
        assert min(later) < first  # old gradients make a single epoch's loss rise at times


@by_strategy(ALL)
def test_an_interrupted_run_ends_with_the_same_bits(laboratory, monkeypatch, strategy):
    """Of asynchronous strategies with one worker; with several the outcome depends on timing."""
    workers = 1 if is_asynchronous(strategy) else 3
    options = {"clip_norm": 0.3, "ema": 0.8, "validation": 0.2}
    run = using(strategy, workers, epochs=4, model=LENET, **options)
    whole, expected = laboratory.trained(run, "whole")
    save = Checkpoints.save

    def save_and_die(self, checkpoint):
        save(self, checkpoint)
        if len(checkpoint["epochs"]) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    save_after_each_epoch(monkeypatch)
    monkeypatch.setattr(Checkpoints, "save", save_and_die)
    with pytest.raises(RankFailedError, match="SIGKILL"):
        laboratory.trained(run, "interrupted")
    monkeypatch.undo()
    metrics, weights = laboratory.trained(run, "interrupted")
    assert same_weights(weights, expected)
    for mine, theirs in zip(metrics["epochs"], whole["epochs"], strict=True):
        assert mine["validation_loss"] == theirs["validation_loss"]


ENDLESS = vary(epochs=100_000)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def program_of(client):
    """The process that a warm process has forked for a client; None: not yet."""
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if file.read_text() == f"keep {client}\n":
                return next(iter(children(int(file.parent.name))), None)
    return None


def started(laboratory, run, forked=False):
    """A training process whose ranks have made a few steps."""
    process = laboratory.train(run, forked=forked)
    wait_for(lambda: (laboratory.checkpoints("run") / "latest.allcores").exists())
    ranks = children(program_of(process.pid) if forked else process.pid)
    assert len(ranks) == run.workers + run.servers
    return process, ranks


@pytest.mark.parametrize("role", ["worker", "server"])
@by_strategy(ALL)
def test_a_killed_rank_ends_the_run_with_its_name(laboratory, strategy, role):
    run = using(strategy, 3, ENDLESS)
    if role == "server" and not run.servers:
        pytest.skip("it has no servers")
    process, ranks = started(laboratory, run, forked=True)
    candidates = range(run.workers) if role == "worker" else range(run.workers, run.processes)
    victim = random.choice(candidates)
    time.sleep(random.random() / 2)
    os.kill(ranks[victim], signal.SIGKILL)
    killed = time.monotonic()
    output, _ = process.communicate(timeout=patience.seconds(60))
    assert patience.is_within(5, killed)
    assert process.returncode == 1
    name = f"worker {victim} (rank {victim})" if role == "worker" else f"server (rank {victim})"
    assert f"{name} (process {ranks[victim]}) was killed by SIGKILL" in output
    assert not any(map(alive, ranks))


def test_twenty_runs_side_by_side_do_not_collide(laboratory):
    laboratory.data()
    strategies = [*(ALL | SYNCHRONOUS | VARIANTS | LOSSY).values(), RARELY, DDP]
    assert len(strategies) >= 20
    processes = [
        laboratory.train(using(strategy, 2, seed=number), f"run{number}")
        for number, strategy in enumerate(strategies)
    ]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=patience.seconds(900))
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
