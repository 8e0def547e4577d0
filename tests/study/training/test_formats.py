"""The numbers that a network computes in, and how its images lie in memory."""

import pytest
import torch
from conftest import LENET, vary

from allcores_study.config import checks, grid, sweeps


def test_bf16_rounds_and_learns(laboratory):
    run = vary(model=LENET, epochs=4)
    exact, weights = laboratory.trained(run)
    rounded, others = laboratory.trained(vary(run, precision="bf16"), "bf16")
    assert all(weight.dtype == torch.float32 for weight in others.values())
    assert not torch.equal(weights["0.weight"], others["0.weight"])
    assert rounded["epochs"][-1]["loss"] == pytest.approx(exact["epochs"][-1]["loss"], rel=0.05)


def test_they_are_a_models_or_the_configs_and_a_list_compares():
    sgd = {"name": "sgd", "lr": 0.1}
    entry = {"batch_size": 8, "epochs": 1, "optimizer": sgd}
    models = {"both": entry | {"name": "mlp", "precision": ["fp32", "bf16"]}, "alexnet": entry}
    study = {"datasets": ["cifar10"], "folds": "test", "models": [*models]}
    config = {"models": models, "studies": {"a": study}}

    def found():
        assert checks.findings(config) == []
        runs = grid.expand(sweeps.expanded(config)).runs.values()
        return {(run.model.label, run.precision, run.memory_format) for run in runs}

    both = {(f"both-precision{each}", each, "contiguous") for each in ("fp32", "bf16")}
    # A built-in model's file says which format it is trained in by default.
    assert found() == both | {("alexnet", "fp32", "channels_last")}
    config["memory_format"] = "contiguous"
    assert found() == both | {("alexnet", "fp32", "contiguous")}
