"""From which size of network and batch on two workers train faster than one: steps of one batch."""

from functools import partial

import torch
from measure import sized
from side_by_side import compare
from torch import nn

from allcores.machine import allocator
from allcores.parallel.optimizers import OptimizerMaker
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.models.lenet import lenet
from allcores_study.training.optimizers import make_chosen

SGD = Entry("SGD", "SGD", {"lr": 0.01, "momentum": 0.9})


def mlp(inputs, hidden, classes):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


# What it is called, what makes it, shape of an input, classes.
NETWORKS = [
    ("MLP of 30-64-2", partial(mlp, 30, 64, 2), (30,), 2),
    ("MLP of 784-512-10", partial(mlp, 784, 512, 10), (784,), 10),
    ("LeNet", partial(lenet, channels=1, image_size=(32, 32), classes=10), (1, 32, 32), 10),
][: sized(None, 1)]
BATCHES = sized((32, 256, 2048), (8,))


def alternatives(make_model, shape, classes, batch, world):
    """{what: a step of the batch}: by one worker while the other does nothing, and by both."""
    allocator.keep_freed_memory()  # as a training does

    def step(strategy, samples, options):
        make = registry.strategies()[strategy].load()
        strategy = make(make_model(), OptimizerMaker(partial(make_chosen, SGD)), world, **options)
        inputs, targets = torch.randn(samples, *shape), torch.randint(classes, (samples,))

        def act():
            nn.functional.cross_entropy(strategy.model(inputs), targets).backward()
            strategy.step(0.01)

        return act

    alone = step("serial", batch, {})
    part = batch // world.workers
    return {
        "one worker": alone if world.rank == 0 else lambda: None,
        "shared_memory": step("shared_memory", part, {}),
        "ddp by shm": step("ddp", part, {"backend": "shm"}),
        "ddp by gloo": step("ddp", part, {}),
    }


if __name__ == "__main__":
    compare(
        "two_workers",
        [
            (f"{label}, batch of {batch:,}", 2, partial(alternatives, *network, batch))
            for label, *network in NETWORKS
            for batch in BATCHES
        ],
    )
