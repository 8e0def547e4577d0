"""Scores that others have published stand beside those measured here."""

import dataclasses

import pandas as pd
import pytest
from test_tables import FACTS

from allcores_study.analysis.tables import published
from allcores_study.config import checks

THERE = {"model": "mlp", "label": "somebody", "score": 0.9}
TIMED = {"model": "mlp", "label": "a cluster", "seconds": 2, "images": 1000}
FACTS = dataclasses.replace(FACTS, references=(THERE, TIMED))


def runs(scores):
    settings = {"dataset": "d", "schedule": "cosine", "strategy": "serial", "nodes": 1}
    settings |= {"workers": 1, "threads": 1, "train_size": "all", "seed": 0, "servers": 0}
    settings |= {"training_seconds": 6.0, "epochs": 3, "cores": 1}
    frames = [
        {"model": model, "split": f"fold {fold} of 2", "score": score} | settings
        for model, of_folds in scores.items()
        for fold, score in enumerate(of_folds)
    ]
    return pd.DataFrame(frames).assign(held_out_samples=10, train_samples=10)


def test_a_published_score_stands_beside_the_mean_here():
    table = published.table(runs({"mlp": [0.85, 0.87], "lenet": [1, 1]}), FACTS)
    score, time, row = table.to_dict("records")
    assert (score["source"], score["score"]) == ("somebody, published elsewhere", 0.9)
    assert (time["source"], time["seconds_per_1000"]) == ("a cluster, published elsewhere", 2)
    assert (row["source"], row["score"]) == ("cosine, serial", pytest.approx(0.86))
    assert row["low_95"] < 0.86 < row["high_95"]
    assert row["seconds_per_1000"] == pytest.approx(1000 * 6 / 30)
    assert published.table(runs({"lenet": [1, 1]}), FACTS) is None


def test_a_reference_has_a_time_or_a_score():
    models = {"mlp": {"batch_size": 8, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}}
    study = {"datasets": ["wine"], "folds": 2, "models": ["mlp"]}
    half = ({"seconds": 3}, False), ({"seconds": 3, "score": 0.9}, False)
    for reference, is_right in ((THERE, True), (TIMED, True), *half):
        entry = study | {"references": [{"model": "mlp", "label": "x"} | reference]}
        found = checks.findings({"models": models, "studies": {"a": entry}})
        assert (found == []) == is_right
        assert is_right or "references.0: lacks seconds and images, or a score" in found[0]
