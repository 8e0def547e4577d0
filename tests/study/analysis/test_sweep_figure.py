"""Candidates by the values of their swept keys."""

import numpy as np
import pandas as pd
import pytest

from allcores_study.analysis import products, selection
from allcores_study.analysis.figures import sweep

FACTS = products.StudyFacts("s", "serial", None, ())
SETUP = {"dataset": "d", "strategy": "serial", "nodes": 1, "workers": 1, "threads": 1}
SETUP |= {"train_size": "all"}
RANDOM = np.random.default_rng(0)


def candidates(count=40, models=("mlp",)):
    """Candidates whose score is told by the logarithm of lr alone, in two folds."""
    rates = 10 ** RANDOM.uniform(-4, 0, count)
    frame = pd.DataFrame(
        {
            "candidate": [f"c{place}" for place in range(count)],
            "swept_lr": rates,
            "swept_hidden": np.array(["[8]", "[16, 16]", "None"])[np.arange(count) % 3],
            "swept_epochs": 3,
            "swept_batch_size": RANDOM.integers(8, 64, count),
            "score": 0.9 - 0.1 * (np.log10(rates) + 2) ** 2,
        }
    )
    folds = [frame.assign(split=fold, score=frame["score"] + fold / 100) for fold in (0, 1)]
    return pd.concat([fold.assign(model=model, **SETUP) for fold in folds for model in models])


def test_none_and_lists_are_values_beside_numbers_in_order():
    shown = [selection._values({"depth": depth}) for depth in (None, [8], 10, 9.5)]
    frame = pd.DataFrame(shown).rename(columns={"swept_depth": "depth"})
    assert frame["depth"].notna().all()
    assert sorted(frame["depth"].map(str), key=sweep.in_order) == ["[8]", "9.5", "10", "None"]
    assert sorted(["-1", "3", "-10", "None"], key=sweep.in_order) == ["-10", "-1", "3", "None"]


def test_candidates_of_one_key_are_joined_beside_a_model_with_other_keys():
    frame = candidates(9).assign(schedule="constant")
    alone = pd.DataFrame(
        {"swept_depth": ["2", "4", "None"], "score": [0.5, 0.6, 0.7], "candidate": ["a", "b", "c"]}
    ).assign(model="forest", schedule="none", **SETUP)
    panels = sweep.figure(pd.concat([frame, alone], ignore_index=True), FACTS).axes
    joined = {
        (panel.get_title("left"), panel.get_xlabel()): max(len(line.get_xdata()) for line in lines)
        for panel in panels
        if (lines := [line for line in panel.lines if line.get_linestyle() == "-"])
    }
    assert joined["forest", "depth"] == 3
    assert joined["mlp", "hidden"] == 3, "each value is of three candidates"
    assert ("mlp", "lr") not in joined


def test_none_stands_behind_the_numbers_and_leaves_those_of_other_models_numbers():
    """A column of a CSV in which one value is None is read as texts."""
    decays = {"mlp": ["0.0001", "0.01", "0.1"], "net": ["10.0", "None", "9.0"]}
    frame = pd.concat(
        pd.DataFrame({"model": model, "swept_decay": values, "score": [0.5, 0.6, 0.7]})
        for model, values in decays.items()
    ).assign(schedule="constant", candidate=["a", "b", "c", "d", "e", "f"], **SETUP)
    numbers, mixed = sweep.figure(frame.reset_index(drop=True), FACTS).axes
    assert numbers.get_xscale() == "log"
    assert sorted(numbers.lines[1].get_xdata()) == [0.0001, 0.01, 0.1]
    assert [label.get_text() for label in mixed.get_xticklabels()] == ["9", "10", "None"]
    scores = dict(zip(*mixed.lines[1].get_data(), strict=True))
    assert scores == pytest.approx({0: 70, 1: 50, 2: 60})
