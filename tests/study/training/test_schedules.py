"""Schedules and losses: torch's own, by name."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import usual, vary

from allcores.loop.sharding import shards, shuffled
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.data.batches import Batches
from allcores_study.data.scaling import channel_statistics
from allcores_study.tasks import classification
from allcores_study.training import losses, models
from allcores_study.training.schedules import Schedule


def rates(name, steps=20, losses_per_epoch=None, **options):
    schedule = Schedule(Entry(name, name, options), 0.1, steps)
    learning_rates = []
    for step in range(steps):
        learning_rates.append(schedule.lr)
        schedule.end_batch()
        if losses_per_epoch and step % 2 == 1:
            schedule.end_epoch(losses_per_epoch[step // 2])
    return learning_rates


def test_constant():
    assert set(rates("constant")) == {0.1}


def test_cosine_falls_to_its_floor():
    learning_rates = rates("cosine", floor=0.01)
    assert learning_rates[0] == 0.1
    assert learning_rates == sorted(learning_rates, reverse=True)
    assert learning_rates[10] == pytest.approx(0.055)
    assert learning_rates[-1] == pytest.approx(0.01, abs=0.001)


def test_warm_restarts():
    learning_rates = rates("warm_restarts", cycles=4)
    assert [step for step in range(20) if learning_rates[step] == 0.1] == [0, 5, 10, 15]
    learning_rates = rates("warm_restarts", steps=21, cycles=3, growth=2)
    assert [step for step in range(21) if learning_rates[step] == 0.1] == [0, 3, 9]


@pytest.mark.parametrize("growth", [1, 2])
@pytest.mark.parametrize("steps", [8, 10, 100])
@pytest.mark.parametrize("warm_up", [0.0, 0.1])
def test_as_many_cycles_as_asked_for_fill_the_training(growth, steps, warm_up):
    learning_rates = rates(
        "warm_restarts", steps, cycles=3, growth=growth, floor=0.01, warm_up=warm_up
    )
    begin = round(warm_up * steps)
    assert sum(rate == pytest.approx(0.1) for rate in learning_rates[begin:]) == 3
    if steps == 100:
        assert learning_rates[-1] == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize(
    ("name", "steps", "options", "line"),
    [
        ("warm_restarts", 2, {"cycles": 3}, "would be shorter than one of 2 steps"),
        ("warm_restarts", 9, {"cycles": 1000, "growth": 100}, "would be shorter than one of"),
        ("warm_restarts", 9, {"floor": 1.0}, "floor 1 is not below the learning rate, 0.1"),
        ("cosine", 9, {"floor": 0.1}, "floor 0.1 is not below the learning rate, 0.1"),
        ("cosine", 9, {"warm_up": 1.0}, "warm_up 1 of 9 steps leaves none for the schedule"),
        ("constant", 1, {"warm_up": 0.6}, "warm_up 0.6 of 1 steps leaves none"),
        ("onecycle", 1, {}, "expected more than one step to rise, and at least one to fall"),
        ("onecycle", 9, {"warm_up": 1.0}, "expected more than one step to rise, and at least one"),
        ("onecycle", 10, {"warm_up": 0.1}, "expected more than one step to rise"),
        ("onecycle", 10, {"warm_up": 1}, "warm_up 1 of 10 steps"),
    ],
)
def test_a_schedule_that_the_training_has_no_room_for_is_refused(name, steps, options, line):
    with pytest.raises(ValueError, match=line):
        rates(name, steps, **options)


def test_multistep():
    assert rates("multistep", milestones=[0.5, 0.75]) == pytest.approx(
        [0.1] * 10 + [0.01] * 5 + [0.001] * 5
    )


def test_onecycle_goes_up_and_down():
    learning_rates = rates("onecycle", warm_up=0.25)
    assert max(learning_rates) == pytest.approx(0.1)
    assert learning_rates.index(max(learning_rates)) == 4
    assert learning_rates[0] < 0.01 > learning_rates[-1]


@pytest.mark.parametrize("name", ["constant", "cosine", "multistep", "warm_restarts"])
def test_warm_up_rises_to_where_the_schedule_begins(name):
    learning_rates = rates(name, warm_up=0.25)
    assert learning_rates[:5] == pytest.approx([0.1 * step / 6 for step in range(1, 6)])
    assert learning_rates[5:] == pytest.approx(rates(name, steps=15))
    assert rates(name, warm_up=0.0) == rates(name)


@pytest.mark.parametrize("done", [3, 5, 12])
def test_a_resumed_warm_up_goes_on_where_it_was(done):
    entry = Entry("cosine", "cosine", {"warm_up": 0.25})
    schedule = Schedule(entry, 0.1, 20)
    for _ in range(done):
        schedule.end_batch()
    resumed = Schedule(entry, 0.1, 20)
    resumed.restore(schedule.state())
    for _ in range(done, 20):
        assert resumed.lr == schedule.lr
        resumed.end_batch()
        schedule.end_batch()


def test_plateau_reacts_to_the_loss():
    improving = rates("plateau", losses_per_epoch=[10 - k for k in range(10)], patience=1)
    assert set(improving) == {0.1}
    stuck = rates("plateau", losses_per_epoch=[1.0] * 10, patience=1)
    assert stuck[-1] == pytest.approx(0.1 * 0.1**4)


@pytest.mark.parametrize("name", registry.schedules())
@pytest.mark.parametrize("steps", [4, 5, 20])
def test_a_restored_schedule_goes_on_where_it_was(name, steps, tmp_path):
    def made():
        return Schedule(Entry(name, name, {}), 0.1, steps)

    whole, first = made(), made()
    for _ in range(steps // 2):
        whole.end_batch()
        first.end_batch()
        whole.end_epoch(1.0)
        first.end_epoch(1.0)
    torch.save(first.state(), tmp_path / "state.pt")
    second = made()
    second.restore(torch.load(tmp_path / "state.pt"))
    for _ in range(steps - steps // 2):
        assert second.lr == whole.lr
        whole.end_batch()
        second.end_batch()


@pytest.mark.parametrize("name", classification.LOSSES)
def test_every_loss_takes_scores_and_classes(name):
    scores = torch.randn(6, 4, requires_grad=True)
    loss = losses.build(Entry(name, name, {}), usual(4))(
        F.log_softmax(scores, dim=1), torch.arange(6) % 4
    )
    loss.backward()
    assert loss.shape == ()
    assert scores.grad.abs().sum() > 0
    labels = torch.arange(6) % 4
    right, wrong = (F.one_hot(classes, 4).float() for classes in (labels, (labels + 1) % 4))
    made = losses.build(Entry(name, name, {}), usual(4))
    assert made(right, labels) < made(wrong, labels)


@pytest.mark.parametrize("name", registry.optimizers())
def test_every_optimizer_trains_as_in_a_plain_loop(laboratory, name):
    plain = {"schedule": Entry("constant", "constant", {}), "crop": 0, "flip": False}
    run = vary(optimizer=Entry(name, name, {"lr": 0.001}), epochs=1, **plain)
    _, weights = laboratory.trained(run)
    opened = storage.open_dataset(laboratory.data())
    mean, std = channel_statistics(opened.pixel_sums[:53], opened.inputs.shape)
    images, labels = Batches(opened.inputs, mean, std), torch.from_numpy(opened.targets)
    torch.manual_seed(run.seed)
    model = models.build(run, opened.shape, opened.task.outputs)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.001)
    for shard in shards(shuffled(np.arange(53), run.seed, 0), run.batch_size, 0, 1):
        F.cross_entropy(model(images.plain(shard.samples)), labels[shard.samples]).backward()
        optimizer.step()
        optimizer.zero_grad()
    for key, expected in model.state_dict().items():
        torch.testing.assert_close(weights[key], expected)
