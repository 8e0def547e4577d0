"""Whole runs for benchmarks: the same as the workflow's, on made data, in a folder of their own."""

import dataclasses
from pathlib import Path

from allcores_study.config import commandline
from allcores_study.config.run import Choice
from allcores_study.data import preparation
from allcores_study.training import experiment, recipes
from allcores_study.training.run_request import RunRequest


def images(count, size):
    """Random images in 10 classes, with a test set of a few more."""
    return Choice(f"fake{size}", "fake", {"count": count, "test": 10, "size": size, "classes": 10})


def run_of(model, dataset, /, *flags, **changes):
    """The run that scripts/train.py would make of these flags, on a dataset of ours, with these
    changes."""
    run = commandline.run_of(commandline.parse([f"--model={model}", *flags], ""))
    usual = {
        "dataset": dataset,
        "model": Choice(model, model, {}),  # not the narrow one of the default config
        "optimizer": Choice("SGD", "SGD", {"lr": 0.01, "momentum": 0.9}),
        "folds": None,
        "fold": None,
        "crop": 4,
        "flip": True,
    }
    return dataclasses.replace(run, **usual | changes)


def train_once(run, folder):
    """What metrics.json would say of the run; what it leaves open is measured first."""
    folder = Path(folder)
    data = folder / run.dataset.label
    preparation.prepare(run.dataset, folder, data)
    asked = run
    if run.has_auto:
        recipe = folder / f"{run.model.label}_w{run.workers}_{run.dataset.label}.json"
        if not recipe.exists():
            recipes.calibrate(run, data, run.cores, recipe)
        run = recipes.fill_in(run, recipe, run.cores)
    request = RunRequest(
        run=run,
        configured=asked,
        data_folder=data,
        checkpoint_folder=folder / "checkpoints",
        output=folder / "output",
    )
    return experiment.train_and_score(request)


def samples_per_second(metrics):
    """Of all epochs but the first."""
    epochs = metrics["epochs"][1:]
    return len(epochs) * metrics["train_samples"] / sum(epoch["seconds"] for epoch in epochs)
