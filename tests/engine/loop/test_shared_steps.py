"""A step of a shared model is one step of its optimizer, also for schedulers and resumed runs."""

import pickle
import random

import numpy as np
import pytest
import torch
from test_shared_model import by_strategy, half, run
from test_worker import close, loss_of, momentum, plain
from torch.utils.data import IterableDataset

import allcores
from allcores.loop import shared_model


def by_optimizer(worker, strategy, options):
    torch.manual_seed(0)
    shared = worker.share(plain(), momentum, strategy, **options)
    for _ in range(4):
        loss_of(shared.model, *half(worker)).backward()
        shared.optimizer.step()
        shared.optimizer.zero_grad()
    shared.synchronize()
    return shared.strategy.module.state_dict()


@by_strategy
def test_the_optimizers_own_step_is_the_step(strategy):
    (wanted,) = run(by_optimizer, "serial", workers=1)
    for weights in run(by_optimizer, strategy):
        assert close(weights, wanted)


def warmed_up(worker, strategy, options, file, resume=None):
    shared = worker.share(plain(), momentum, strategy, resume=resume, **options)
    schedule = torch.optim.lr_scheduler.LinearLR(shared.optimizer, 0.1, total_iters=8)
    if resume:
        schedule.load_state_dict(shared.saved["schedule"])
        shared.restore_settings()
    rates = []
    for _ in range(4):
        rates.append(shared.optimizer.param_groups[0]["lr"])
        loss_of(shared.model, *half(worker)).backward()
        shared.step()
        schedule.step()
    shared.synchronize()
    shared.save(file, schedule=schedule.state_dict())
    return rates


@by_strategy
def test_a_warm_up_goes_on_where_it_was(tmp_path, strategy):
    first, _ = run(warmed_up, strategy, tmp_path / "first")
    then, _ = run(warmed_up, strategy, tmp_path / "then", tmp_path / "first")
    assert first[0] < first[-1] < then[0]
    assert np.allclose(np.diff(first + then), first[1] - first[0])


class Counting(torch.optim.Optimizer):
    """Counts its steps in the group, as schedule-free ones do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "count": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["count"] += 1
            for weights in group["params"]:
                weights.add_(weights.grad, alpha=-group["lr"] / group["count"])


def count_steps(worker, strategy, options, file, steps, resume=None):
    torch.manual_seed(0)
    model = torch.nn.Linear(2000, 1000)
    shared = worker.share(model, Counting, strategy, resume=resume, **options)
    inputs = torch.randn(4, 2000)[worker.rank :: worker.workers]
    for _ in range(steps):
        shared.model(inputs).square().mean().backward()
        shared.step()
    shared.synchronize()
    shared.save(file)
    return shared.strategy.module.state_dict()


def test_what_an_optimizer_counts_is_counted_once_and_goes_on(tmp_path):
    (wanted,) = run(count_steps, "serial", tmp_path / "all", 4, workers=1)
    run(count_steps, "shared_memory", tmp_path / "first", 2)
    for weights in run(count_steps, "shared_memory", tmp_path / "then", 2, tmp_path / "first"):
        assert close(weights, wanted)


def test_the_state_of_another_strategy_is_refused(tmp_path):
    file = tmp_path / "state"
    run(count_steps, "shared_memory", file, 1)
    message = "was saved by SharedMemory, Counting, with 0 servers; found Ring, Counting"
    with pytest.raises(allcores.RankFailedError, match=message):
        run(count_steps, "ring", tmp_path / "other", 1, file)


def unused_head(worker, strategy, options):
    heads = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(2))
    heads.forward = lambda head: heads[head](torch.ones(1, 2)).sum()
    shared = worker.share(heads, momentum, strategy, find_unused_parameters=True)
    with shared.accumulating():
        shared.model(0).backward()
    shared.model(1).backward()
    shared.step()


def test_the_last_forward_says_whether_ddp_exchanges():
    run(unused_head, "ddp")


def of_complex_numbers(worker, strategy, options):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2, dtype=torch.complex64)
    shared = worker.share(model, momentum, strategy)
    shared.model(torch.ones(1, 2, dtype=torch.complex64)).abs().sum().backward()
    shared.step()
    return model.state_dict()


def test_ddp_trains_complex_numbers():
    (wanted,) = run(of_complex_numbers, "serial", workers=1)
    for weights in run(of_complex_numbers, "ddp"):
        assert all(torch.allclose(weights[name], wanted[name]) for name in wanted)


class Shuffled(IterableDataset):
    def __iter__(self):
        order = torch.randperm(20).tolist()
        random.shuffle(order)
        return iter(np.random.permutation(order))


def test_a_stream_that_shuffles_is_the_same_for_all():
    def seen(worker):
        if worker.rank == 0:
            torch.rand(3), random.random(), np.random.rand()
        return [
            [int(one) for batch, _ in worker.batches(Shuffled(), np.int64(5)) for one in batch]
            for _ in range(2)
        ]

    (first, again), (second, _) = allcores.run(seen, workers=2)
    assert {*first, *second} == {*range(20)}
    assert first != again


def test_views_of_a_vector_are_pickled_as_what_they_show():
    vector = torch.arange(1000.0)
    parts = {f"{k}": vector[k : k + 2] for k in range(500)}
    parts["parameter"] = torch.nn.Parameter(vector[:3], requires_grad=False)
    data = shared_model.pickled(parts)
    assert len(data) < 200_000
    found = pickle.loads(data)
    assert all(torch.equal(found[name], part) for name, part in parts.items())
    assert isinstance(found["parameter"], torch.nn.Parameter)
    assert not found["parameter"].requires_grad
