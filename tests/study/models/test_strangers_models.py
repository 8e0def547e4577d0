"""Models as strangers write them, from a config to the report: what they keep, read and change."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import usual, vary
from project import copy

from allcores_study.config import component
from allcores_study.config.run import Entry
from allcores_study.data.batches import Batches
from allcores_study.planning import trials
from allcores_study.records import run_files
from allcores_study.training.evaluation import scores_of

KEPT_OUTSIDE = """
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Fourier(nn.Module):
    def __init__(self, classes, draw=torch.randn):
        super().__init__()
        self.directions = draw(64, 16)
        self.last = nn.Linear(16, classes)

    def forward(self, x):
        return self.last(torch.sin(x.flatten(1) @ self.directions))


def of_numpy(classes):
    return Fourier(classes, lambda *shape: torch.tensor(np.random.rand(*shape)).float())


def of_python(classes):
    return Fourier(classes, lambda *shape: torch.full(shape, random.random()))


def constant(classes):
    return Fourier(classes, torch.ones)


class Buffer(Fourier):
    def __init__(self, classes):
        super().__init__(classes)
        directions = self.__dict__.pop("directions")
        self.register_buffer("directions", directions)


class List(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = [nn.Linear(64, 64)]
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return self.last(self.layers[0](x.flatten(1)))


class Dropping(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return self.last(F.dropout(x.flatten(1), 0.5))


class Counting(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last, self.calls = nn.Linear(64, classes), 0

    def forward(self, x):
        self.calls += 1
        return self.last(x.flatten(1)) * (1 + self.calls)
"""


@pytest.fixture
def kept_outside(tmp_path, monkeypatch):
    (tmp_path / "kept_outside.py").write_text(KEPT_OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    component.source_of.cache_clear()


@pytest.mark.parametrize(
    ("name", "is_fit"),
    [
        *[(name, False) for name in ("Fourier", "of_numpy", "of_python", "List")],
        *[(name, True) for name in ("constant", "Buffer", "Dropping", "Counting")],
    ],
)
def test_what_a_state_dict_lacks_is_found_in_a_trial(kept_outside, name, is_fit):
    run = vary(model=Entry("own", f"kept_outside:{name}", {}))
    problem = trials.answer(run, (1, 8, 8), usual(3))["problem"]
    assert (problem is None) if is_fit else ("register_buffer" in problem)


NETS = """
import argparse
import random

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--cores", type=int, default=4)
parser.add_argument("--data", default="data")
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], args.cores), nn.Linear(args.cores, classes)
        assert args.data == "data"

    def forward(self, x):
        if self.training:
            x = x + np.random.rand() + random.random()
        return self.last(self.first(x))


class Double(Net):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.double()

    def forward(self, x):
        return super().forward(x.double())
"""
CONFIG = """
models:
  net: &settings {import: "nets:Net", batch_size: 6, epochs: 2, optimizer: {name: sgd, lr: 0.1}}
  again: {<<: *settings}
  double: {<<: *settings, import: "nets:Double"}
datasets: {rows: {name: npz, path: rows.npz}}
studies: {one: {datasets: [rows], folds: 2, models: [net, again, double]}}
precision: fp32
memory_format: contiguous
"""


def test_a_model_that_reads_arguments_draws_from_numpy_or_gives_float64_is_reported(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    random = np.random.default_rng(0)
    labels = np.arange(40) % 2
    np.savez(tmp_path / "rows.npz", inputs=random.normal(size=(40, 5)).astype("f4"), labels=labels)
    project.config.write_text(CONFIG)
    project.call()
    runs = {str(run): run_files.metrics(run) for run in run_files.below(project.results)}
    assert len(runs) == 6
    for path, run in runs.items():
        assert run["parameters"] == (5 + 1) * 4 + (4 + 1) * 2, "--cores is its own argument"
        same = runs[path.replace("/net/", "/again/")]
        assert run["loss"] == same["loss"], path
    assert len(pd.read_csv(project.results / "studies" / "one" / "runs.csv")) == 6


class Emptying(torch.nn.Module):
    def forward(self, x):
        return x.mul_(0)


def test_an_input_that_is_changed_in_place_is_scored_as_it_was():
    source = Batches(np.ones((3, 2), np.float32), np.zeros(2), np.ones(2))
    ((_, scores),) = scores_of(Emptying(), source, np.arange(3))
    assert (source.inputs == 1).all()
    assert (scores == 0).all()
