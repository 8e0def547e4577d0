"""Whole runs for benchmarks: the same as the workflow's, on made data, in a folder of their own."""

import argparse
import dataclasses
import os
from pathlib import Path

from allcores_study.campaign import by_hand
from allcores_study.config.run import Entry
from allcores_study.data import preparation
from allcores_study.training import experiment
from allcores_study.training.run_request import RunRequest


def images(count, size):
    """Random images in 10 classes, with a test set of a few more."""
    return Entry(f"fake{size}", "fake", {"count": count, "test": 10, "size": size, "classes": 10})


def by_flags(model, *flags):
    """The run that scripts/train.py would make of these flags."""
    parser = argparse.ArgumentParser()
    by_hand.add_flags(parser)
    return by_hand.expanded(parser.parse_args([f"--model={model}", *flags]))[1].of(by_hand.STUDY)[0]


def run_of(model, dataset, /, *flags, **changes):
    """The same on a dataset of ours, with these changes."""
    usual = {
        "dataset": dataset,
        "model": Entry(model, model, {}),  # not the narrow one of the default config
        "optimizer": Entry("SGD", "SGD", {"lr": 0.01, "momentum": 0.9}),
        "folds": None,
        "fold": None,
        "crop": 4,
        "flip": True,
    }
    return dataclasses.replace(by_flags(model, *flags), **usual | changes)


def train_once(run, folder):
    """What metrics.json would say of the run."""
    folder = Path(folder)
    data = folder / run.dataset.label
    preparation.prepare(run.dataset, folder, data)
    request = RunRequest(
        run=run,
        data_folder=data,
        checkpoint_folder=folder / f"checkpoints{os.getpid()}",
        output=folder / f"output{os.getpid()}",
    )
    return experiment.train_and_score(request)


def samples_per_second(metrics):
    """Of all epochs but the first."""
    epochs = metrics["epochs"][1:]
    return len(epochs) * metrics["train_samples"] / sum(epoch["seconds"] for epoch in epochs)
