"""Training steps of all workers under each strategy, against workers that exchange nothing."""

from functools import partial

import torch
from measure import sized
from side_by_side import compare

from allcores.machine import allocator, cores
from allcores.parallel.optimizers import OptimizerMaker
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.training import models
from allcores_study.training.optimizers import make_chosen

SGD = Entry("SGD", "SGD", {"lr": 0.01, "momentum": 0.9})
# What it is called, model, images per worker (3 x 32 x 32), memory format.
CASES = [
    ("LeNet", "lenet", 16, "contiguous"),
    ("MobileNet", "mobilenet", 8, "channels_last"),
    ("MobileNet", "mobilenet", 32, "channels_last"),
    ("VGG-19", "vgg19", 8, "channels_last"),
    ("VGG-19", "vgg19", 32, "channels_last"),
][: sized(None, 1)]
# Each on a core of its own.
WORKER_COUNTS = sized(sorted({2, cores.allowed()} - {1}), [2])
# Without exchange, each worker applies its own gradient to weights of its own.
STRATEGIES = {"no exchange": ("serial", {}), "ddp": ("ddp", {}), "ring": ("ring", {})}
STRATEGIES |= {"shared_memory": ("shared_memory", {})}


def alternatives(name, batch, memory_format, world, strategies=STRATEGIES):
    """{strategy: a step of it}.

    Args:
        name: of a model, or a function that makes one.
    """
    allocator.keep_freed_memory()  # as a training does
    images = torch.randn(batch, 3, 32, 32)
    targets = torch.randint(10, (batch,))

    def step(strategy, options):
        make_model = registry.model(name).load() if isinstance(name, str) else name
        model = make_model(channels=3, image_size=(32, 32), classes=10)
        model.to(memory_format=models.MEMORY_FORMATS[memory_format])
        make = registry.strategies()[strategy].load()
        strategy = make(model, OptimizerMaker(partial(make_chosen, SGD)), world, **options)

        def act():
            torch.nn.functional.cross_entropy(strategy.model(images), targets).backward()
            strategy.step(0.01)

        return act

    return {label: step(*way) for label, way in strategies.items()}


if __name__ == "__main__":
    compare(
        "training_step",
        [
            (f"{label}, {batch} images each", workers, partial(alternatives, name, batch, form))
            for workers in WORKER_COUNTS
            for label, name, batch, form in CASES
        ],
    )
