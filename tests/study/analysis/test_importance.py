"""Which swept keys mattered: what is told of candidates whose scores are known."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from allcores_study.analysis import products, selection
from allcores_study.analysis.figures import importance, sweep

FACTS = products.Facts("s", "serial", None, ())
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
    return pd.concat([fold.assign(model=model) for fold in folds for model in models])


def test_the_key_that_decides_has_nearly_all_of_the_importance():
    frame = importance._of_candidates(candidates())
    assert [*frame] == ["swept_lr", "swept_hidden", "swept_batch_size", "score"]
    shares, predicted = importance.importance(frame)
    assert shares["swept_lr"] > 0.9
    assert shares.sum() == pytest.approx(1)
    assert predicted > 0.8
    _, of_noise = importance.importance(frame.assign(score=RANDOM.normal(size=len(frame))))
    assert of_noise < 0.3
    shares, _ = importance.importance(frame.assign(score=0.5))
    assert (shares == 0).all(), "nothing mattered"


def test_each_candidate_is_a_line_and_the_best_one_is_thick():
    frame = candidates(models=("mlp", "lenet"))
    drawn = importance.figure(frame, FACTS)
    left, right = drawn.axes[:2]
    assert left.get_yticklabels()[0].get_text() == "lr"
    assert "% predicted" in left.get_title(loc="left")
    (lines,) = [kind for kind in right.collections if isinstance(kind, LineCollection)]
    assert len(lines.get_segments()) == 40
    best = frame[frame["model"] == "mlp"].groupby("candidate")["score"].mean().max()
    assert lines.get_array().max() == pytest.approx(100 * best)
    assert np.argmax(lines.get_linewidths()) == np.argmax(lines.get_array())
    heights = np.concatenate(lines.get_segments())[:, 1]
    assert (heights.min(), heights.max()) == (0, 1)
    names = [label.get_text() for label in right.get_xticklabels()]
    assert sorted(names) == ["batch size", "hidden", "lr"]


def test_candidates_without_scores_are_left_out():
    frame = candidates(9)
    frame.loc[frame["candidate"] != "c1", "score"] = np.nan
    assert len(importance.figure(frame, FACTS).axes[0].texts) == 1, "it says so"


def test_it_is_made_of_sweeps_over_several_keys():
    def swept(count, *keys):
        entry = {"family": "mlp", "values": dict.fromkeys(keys, 1)}
        labels = [f"mlp{place}" for place in range(count)]
        return {"swept": dict.fromkeys(labels, entry)}, {"models": labels}

    is_made = products.CONDITIONS["swept_widely"]
    assert is_made(*swept(8, "lr", "hidden"))
    assert not is_made(*swept(7, "lr", "hidden"))
    assert not is_made(*swept(8, "lr"))


def test_none_and_lists_are_values_beside_numbers_in_order():
    shown = [selection._values({"depth": depth}) for depth in (None, [8], 10, 9.5)]
    frame = pd.DataFrame(shown).rename(columns={"swept_depth": "depth"})
    assert frame["depth"].notna().all()
    assert sorted(frame["depth"].map(str), key=sweep.in_order) == ["[8]", "9.5", "10", "None"]
    assert sorted(["-1", "3", "-10", "None"], key=sweep.in_order) == ["-10", "-1", "3", "None"]


def test_candidates_of_one_key_are_joined_beside_a_model_with_other_keys():
    frame = candidates(9).assign(schedule="constant", pruned=False)
    alone = pd.DataFrame(
        {"swept_depth": ["2", "4", "None"], "score": [0.5, 0.6, 0.7], "candidate": ["a", "b", "c"]}
    ).assign(model="forest", schedule="none", pruned=False)
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
    ).assign(schedule="constant", pruned=False, candidate=["a", "b", "c", "d", "e", "f"])
    numbers, mixed = sweep.figure(frame.reset_index(drop=True), FACTS).axes
    assert numbers.get_xscale() == "log"
    assert sorted(numbers.lines[1].get_xdata()) == [0.0001, 0.01, 0.1]
    assert [label.get_text() for label in mixed.get_xticklabels()] == ["9", "10", "None"]
    scores = dict(zip(*mixed.lines[1].get_data(), strict=True))
    assert scores == pytest.approx({0: 70, 1: 50, 2: 60})
    places, ends = importance._positions(importance._numbers(frame["swept_decay"][3:]))
    assert list(places) == [0.5, 1, 0]
    assert ends == ("9", "None")
    wide, ends = importance._positions(importance._numbers(frame["swept_decay"][:3]))
    assert list(wide) == pytest.approx([0, 2 / 3, 1]), "logarithms"
    assert ends == (0.0001, 0.1)
