"""Strategies whose workers do not wait for each other: nothing is lost, and they learn."""

import time

import pytest
import torch
from conftest import LENET, optimizer_maker, same_weights, using, vary

from allcores.parallel import launch
from allcores.strategies.async_parameter_server import AsyncParameterServer
from allcores.strategies.gossip import Gossip
from allcores.strategies.hogwild import Hogwild
from allcores.strategies.local_sgd import LocalSGD
from allcores_study.config.run import Entry

DIGITS = Entry("digits", "digits", {})
LEARNING = vary(
    dataset=DIGITS, folds=5, fold=0, batch_size=32, epochs=7, crop=0, flip=False,
    schedule=Entry("cosine", "cosine", {}),
)  # fmt: skip
MODELS = {"lenet": Entry("lenet", "lenet", {}), "mlp": Entry("mlp", "mlp", {})}
OPTIMIZERS = {
    "momentum": Entry("SGD", "SGD", {"lr": 0.02, "momentum": 0.9}),
    "adam": Entry("Adam", "Adam", {"lr": 0.002}),
}
ASYNC = Entry("async", "async_parameter_server", {})
RARELY = Entry("rarely", "async_parameter_server", {"servers": 2, "n_push": 3, "n_pull": 2})
HOGWILD = Entry("hogwild", "hogwild", {})
LOCKED = Entry("locked", "hogwild", {"locked": True})


@pytest.mark.parametrize(
    ("strategy", "model", "optimizer", "workers"),
    [
        (ASYNC, "mlp", "momentum", 3),
        (HOGWILD, "lenet", "momentum", 2),
        (LOCKED, "mlp", "adam", 3),
    ],
    ids=lambda value: getattr(value, "label", value),
)
def test_they_reach_the_accuracy_of_serial_training(
    laboratory, reference, strategy, model, optimizer, workers
):
    run = vary(LEARNING, model=MODELS[model], optimizer=OPTIMIZERS[optimizer])
    serial, _ = reference(run)
    metrics, _ = laboratory.trained(using(strategy, workers, run))
    assert metrics["accuracy"] >= serial["accuracy"] - 0.02


def test_pushing_and_pulling_rarely_learns_too(laboratory):
    run = vary(LEARNING, model=MODELS["mlp"], optimizer=OPTIMIZERS["momentum"])
    metrics, _ = laboratory.trained(using(RARELY, 2, run))
    assert metrics["accuracy"] > 0.9


def test_own_updates_make_nothing_stale(laboratory):
    patient = Entry("patient", "async_parameter_server", {"n_pull": 3})
    metrics, _ = laboratory.trained(using(patient, 1))
    assert [epoch["staleness"] for epoch in metrics["epochs"]] == [[6], [6]]


@pytest.mark.parametrize("strategy", [ASYNC, RARELY], ids=lambda strategy: strategy.label)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_servers_apply_every_update_once(laboratory, strategy, workers):
    metrics, _ = laboratory.trained(using(strategy, workers, epochs=3))
    # 53 samples in batches of 10 are 6 steps per epoch and worker, pushed one by one or by threes.
    pushes = workers * (6 if strategy is ASYNC else 2 * 2)
    for epoch in metrics["epochs"]:
        assert epoch["pushed"] == pushes
        assert sum(epoch["staleness"]) == pushes
    assert workers > 1 or all(len(epoch["staleness"]) == 1 for epoch in metrics["epochs"])


def test_an_epoch_ends_when_slow_servers_have_applied_everything(tmp_path):
    def target(world):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        make_optimizer = optimizer_maker("SGD", lr=0.1)
        strategy = AsyncParameterServer(model, make_optimizer, world, n_pull=100)
        if world.is_server:
            at_once = strategy.update
            strategy.update = lambda lr: (time.sleep(0.2), at_once(lr))
            return strategy.serve()
        if world.rank == 0:
            for _ in range(3):
                model(torch.ones(1, 3)).sum().backward()
                strategy.step(0.1)
        strategy.synchronize()
        strategy.close()
        torch.save(model.state_dict(), tmp_path / str(world.rank))

    launch.run_ranks(target, 2, 1, 1)
    assert same_weights(*(torch.load(tmp_path / rank) for rank in "01"))


@pytest.mark.parametrize(("workers", "every", "moved"), [(1, 3, 7.0), (2, 9, 2.0)])
def test_a_worker_moves_by_its_part_of_the_learning_rate_for_each_step(
    tmp_path, workers, every, moved
):
    """Whether it has pushed steps since it last pulled, or none yet."""

    def target(world):
        model = torch.nn.Linear(1, 1, bias=False)
        model.weight.data.zero_()
        maker = optimizer_maker("SGD", lr=1.0)
        strategy = AsyncParameterServer(model, maker, world, n_push=every, n_pull=9)
        if world.is_server:
            return strategy.serve()
        for _ in range(7 if workers == 1 else 4):
            model(torch.ones(1, 1)).sum().backward()
            strategy.step(1.0)
        if workers == 1:
            strategy.synchronize()
        (tmp_path / str(world.rank)).write_text(str(float(model.weight)))
        strategy.synchronize()
        strategy.close()

    launch.run_ranks(target, workers, 1, 1)
    assert float((tmp_path / "0").read_text()) == -moved


def test_gossip_averages_with_both_neighbours_and_no_others(tmp_path):
    def target(world):
        model = torch.nn.Linear(1, 1, bias=False)
        strategy = Gossip(model, optimizer_maker("SGD", lr=1.0), world)
        strategy.flat.weights.fill_(world.rank)
        strategy.step(1.0)
        (tmp_path / str(world.rank)).write_text(str(float(model.weight)))

    launch.run_ranks(target, 4, 0, 1)
    averaged = [float((tmp_path / str(rank)).read_text()) for rank in range(4)]
    assert averaged == pytest.approx([4 / 3, 1, 2, 5 / 3])


def test_after_as_many_averaged_steps_as_post_local_says_workers_are_on_their_own(tmp_path):
    def target(world):
        model = torch.nn.Linear(1, 1, bias=False)
        maker = optimizer_maker("SGD", lr=1.0)
        strategy = LocalSGD(model, maker, world, every=100, post_local=2)
        strategy.flat.weights.zero_()
        weights = []
        for _ in range(3):
            model(torch.full((1, 1), float(world.rank))).sum().backward()
            strategy.step(1.0)
            weights.append(float(model.weight))
        (tmp_path / str(world.rank)).write_text(str(weights))

    launch.run_ranks(target, 2, 0, 1)
    assert [(tmp_path / rank).read_text() for rank in "01"] == [
        "[-0.5, -1.0, -1.0]",
        "[-0.5, -1.0, -2.0]",
    ]


def test_a_slow_worker_does_not_resume_over_the_updates_of_others(tmp_path):
    def target(world):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2, bias=False)
        strategy = Hogwild(model, optimizer_maker("SGD", lr=0.1), world)
        start = {"weight": torch.zeros(2, 3)}
        if world.rank == 1:
            at_once = model.load_state_dict
            model.load_state_dict = lambda weights: (time.sleep(0.3), at_once(weights))
        strategy.restore({"model": start, "optimizer": strategy.optimizer.state_dict()})
        if world.rank == 0:
            model(torch.ones(1, 3)).sum().backward()
            strategy.step(2.0)
        strategy.synchronize()
        torch.save(model.state_dict(), tmp_path / str(world.rank))

    launch.run_ranks(target, 2, 0, 1)
    for rank in "01":
        assert torch.equal(torch.load(tmp_path / rank)["weight"], -torch.ones(2, 3))


@pytest.mark.parametrize("strategy", [HOGWILD, LOCKED], ids=lambda strategy: strategy.label)
def test_hogwild_counts_the_staleness_of_every_update(laboratory, strategy):
    alone, _ = laboratory.trained(using(strategy, 1), "alone")
    assert [epoch["staleness"] for epoch in alone["epochs"]] == [[6], [6]]
    crowd, _ = laboratory.trained(using(strategy, 4, epochs=5), "crowd")
    assert all(sum(epoch["staleness"]) == 24 for epoch in crowd["epochs"])
    assert any(len(epoch["staleness"]) > 1 for epoch in crowd["epochs"])


@pytest.mark.parametrize("strategy", [ASYNC, HOGWILD], ids=lambda strategy: strategy.label)
def test_an_asynchronous_update_has_its_part_of_the_learning_rate(laboratory, strategy):
    """W updates with lr / W go as far as one with lr, the more exactly the smaller it is."""
    small = Entry("SGD", "SGD", {"lr": 0.01})
    run = vary(optimizer=small, epochs=1, model=LENET)
    _, serial = laboratory.trained(run, "serial")
    _, start = laboratory.trained(vary(run, optimizer=Entry("SGD", "SGD", {"lr": 1e-12})), "start")
    _, other = laboratory.trained(using(strategy, 4, run), "other")
    moved = sum((serial[name] - start[name]).square().sum() for name in serial).sqrt()
    apart = sum((serial[name] - other[name]).square().sum() for name in serial).sqrt()
    assert apart < 0.25 * moved  # with the whole lr it would be 3
