"""Fused optimizers train whatever plain ones do, to the same weights."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import MOBILENET, RUN, optimizer_maker, vary
from torch import nn

from allcores_study.config.run import Entry
from allcores_study.training import models
from allcores_study.training.optimizers import FUSED

SGD = {"lr": 0.05, "momentum": 0.9}


class Late(nn.Module):
    """Skips its second layer in the first steps and in some later ones, as in stochastic depth."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs, step):
        hidden = self.first(inputs).tanh()
        return self.last(hidden + self.second(hidden) if step in (2, 3, 5) else hidden)


class Sparse(nn.Module):
    """Its embedding has sparse gradients, of which no module says so; and a mask of that name."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 5))
        self.last = nn.Linear(5, 2)
        self.register_buffer("sparse", torch.ones(2))

    def forward(self, inputs, step):
        rows = F.embedding(inputs.abs().long() % 8, self.weight, sparse=True)
        return self.last(rows.mean(1)) * self.sparse


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(5, 2, dtype=torch.complex64))

    def forward(self, inputs, step):
        return (inputs.to(torch.complex64) @ self.weight).abs()


def trained(model, optimizer):
    torch.manual_seed(1)
    for step in range(7):
        model(torch.randn(4, 5), step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", SGD),
        ("SGD", SGD | {"nesterov": True, "weight_decay": 0.1}),
        ("SGD", SGD | {"dampening": 0.5}),
        ("SGD", {"lr": 0.05}),
        ("Adam", {"lr": 0.01}),
        ("Adagrad", {"lr": 0.01}),
    ],
)
@pytest.mark.parametrize("make", [Late, Sparse, Complex])
def test_they_train_what_plain_ones_do(make, name, options):
    if make is Sparse and (name == "Adam" or options.keys() & {"nesterov"}):
        pytest.skip("plain torch refuses sparse gradients, too")
    model, plain = make(), make()
    trained(model, optimizer_maker(name, **options)(model.parameters()))
    assert name in FUSED
    trained(plain, getattr(torch.optim, name)(plain.parameters(), **options))
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_weight_that_is_a_part_of_a_larger_tensor_becomes_a_whole_one(tmp_path, monkeypatch):
    (tmp_path / "sliced.py").write_text(SLICED)
    monkeypatch.syspath_prepend(tmp_path)
    model = models.build(vary(RUN, model=Entry("sliced", "sliced:Net", {})), (4,), 3)
    assert model.weight.is_contiguous()
    assert torch.equal(model.weight, copy.deepcopy(model).large[:, :3])


SLICED = """
import torch


class Net(torch.nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.large = torch.randn(shape[0], 9)
        self.weight = torch.nn.Parameter(self.large[:, :classes])
"""


def test_an_average_of_weights_takes_the_counts_of_batch_norm_as_they_are(laboratory):
    run = vary(RUN, model=MOBILENET, ema=0.3, epochs=3, batch_size=20)
    _, weights = laboratory.trained(run)
    counts = [value for name, value in weights.items() if name.endswith("num_batches_tracked")]
    assert {int(count) for count in counts} == {9}
