"""Which model and schedule is best, by how much, and how sure that is."""

import numpy as np
import pandas as pd
import pytest
from test_tables import FACTS, made, runs_of

from allcores_study.analysis import comparison, methods, products, verdict

# Held-out accuracy in four folds. `near` differs from `best` as much as folds do, `far` by more.
SCORES = {
    "best": [0.95, 0.96, 0.94, 0.95],
    "near": [0.96, 0.94, 0.93, 0.95],
    "far": [0.81, 0.82, 0.79, 0.81],
    "same": [0.95, 0.96, 0.94, 0.95],
}


def runs(names, **changes):
    metrics = [
        made("serial", 1, fold, score, 9.0) | changes
        for name in names
        for fold, score in enumerate(SCORES[name])
    ]
    frame = runs_of(metrics)
    frame["model"] = [name for name in names for _ in SCORES[name]]
    return frame


def table(frame):
    return products.load("models_table").table(frame, FACTS)


def said(frame):
    (sentence,) = verdict._best_models(table(frame), FACTS)
    return sentence


def test_others_are_compared_with_the_best_in_pairs_of_runs():
    ranking = table(runs(["far", "best", "near"])).set_index("model")
    assert list(ranking.index) == ["best", "near", "far"]
    assert ranking["finding"]["best"] == "best"
    assert ranking["score"]["near"] == pytest.approx(0.945)
    assert ranking["finding"]["near"] == comparison.NOT_SIGNIFICANT
    assert ranking["finding"]["far"] == comparison.DIFFERS
    assert ranking["difference"]["far"] == pytest.approx(-0.1425)
    pairs = np.subtract(SCORES["far"], SCORES["best"]), np.subtract(SCORES["near"], SCORES["best"])
    share = 10 / 100  # held out for each that is trained on
    p = [comparison.corrected_t_test(differences, share)[3] for differences in pairs]
    # The best is found by the same runs: all three pairs count.
    expected = comparison.holm([*p, 1.0])[:2]
    assert list(ranking["p_corrected"][["far", "near"]]) == pytest.approx(list(expected))


def test_it_is_said_in_a_sentence_for_each_finding():
    sentence = said(runs(["best", "near", "far"]))
    assert sentence == (
        "best scored best: accuracy 95.0% (95 % interval: 93.2 to 96.3). near is statistically "
        "indistinguishable from it. far (14.2 points lower) is significantly worse."
    )
    lower = runs(["best", "near"])
    lower.loc[lower["model"] == "near", "score"] -= [0.01, 0.03, 0.02, 0.02]
    assert said(lower).endswith(
        "near (2.5 points lower) is not significantly worse with 4 runs of each."
    )


def test_seeds_with_the_same_folds_are_no_further_evidence():
    """As of few groups, which can be divided in few ways."""
    frame = runs(["best", "near"])
    once = table(frame).set_index("model").loc["near"]
    again = pd.concat([frame, frame.assign(seed=1), frame.assign(seed=2)], ignore_index=True)
    twelve = table(again).set_index("model").loc["near"]
    assert (once["pairs"], twelve["pairs"]) == (4, 12), "of other folds each counts"
    assert twelve["p"] < once["p"]
    known = again.assign(test_samples=again["split"])
    (row,) = table(known).query("model == 'near'").to_dict("records")
    for column in ("pairs", "difference", "low", "high", "p", "low_95", "high_95"):
        assert row[column] == pytest.approx(once[column]), column
    assert any("same folds" in said for said in verdict.of_conditions(known))
    assert not any("same folds" in said for said in verdict.of_conditions(again))


def test_the_mean_that_is_shown_is_in_the_middle_of_its_interval():
    """Where one division into few groups came twice, another once."""
    frame = runs(["best", "near"])
    again = pd.concat([frame, frame.assign(seed=1)], ignore_index=True)
    again = pd.concat([again, frame.assign(seed=2, score=1 - frame["score"])], ignore_index=True)
    known = again.assign(test_samples=again["split"] + (again["seed"] == 2).map(str))
    for name, of_row in (("models_table", "score"), ("accuracy_table", "accuracy")):
        made = products.load(name).table(known, FACTS).set_index("model")
        for model in ("best", "near"):
            scores = known[known["model"] == model].groupby("test_samples")["score"].mean()
            assert made.loc[model, of_row] == pytest.approx(scores.mean())
            assert made.loc[model, of_row] != pytest.approx(
                known[known["model"] == model]["score"].mean()
            )


def tables(frame):
    names = ("models_table", "accuracy_table")
    return {name: products.load(name).table(frame, FACTS) for name in names}


def test_it_is_known_how_large_a_difference_is_possible():
    made_runs = [made("serial", 1, fold, 0.8, 9.0) for fold in range(4)]
    made_runs += [made("ddp", 2, fold, 0.8 + 0.01 * fold - 0.01, 5.0) for fold in range(4)]
    _, row = products.load("accuracy_table").table(runs_of(made_runs), FACTS).to_dict("records")
    assert (row["p_corrected"], row["at_most"]) == pytest.approx((0.559, 0.029), abs=5e-4)


def test_equal_ones_are_told_to_be_equal():
    assert "same is identical to it in every pair of runs." in said(runs(["best", "same"]))


def test_other_setups_of_a_model_are_not_rivals():
    frame = runs(["best", "far"])
    fast = runs(["best", "far"]).assign(strategy="ddp", workers=2, cores=2, score=0.99)
    assert len(table(pd.concat([frame, fast]))) == 2


def test_one_of_which_runs_diverged_is_not_ranked():
    frame = runs(["best", "far", "same"])
    second = frame["split"] != "fold 0 of 2"
    is_bad = (frame["model"] == "best") & second | (frame["model"] == "same")
    frame.loc[is_bad, ["score", "diverged"]] = np.nan, "epoch 1"
    ranking = table(frame).set_index("model")
    assert ranking.index[0] == "far"
    assert ranking["finding"]["far"] == "best"
    assert set(ranking["finding"][["best", "same"]]) == {"not ranked: some of its runs diverged"}
    assert "best and same are not ranked, because runs diverged." in said(frame)


def test_one_whose_metric_is_not_defined_in_all_runs_is_not_ranked():
    frame = runs(["best", "far"])
    frame.loc[(frame["model"] == "best") & (frame["split"] == "fold 0 of 2"), "score"] = np.nan
    assert table(frame)["finding"].to_list()[1] == "not ranked: not defined in some of its runs"
    assert "best is not ranked, because the score is not defined in all runs." in said(frame)


@pytest.mark.parametrize("names", [["best"], ["near"]])
def test_one_alone_is_the_best_of_nothing(names):
    sentence = said(runs(names))
    assert sentence.startswith(f"{names[0]} reached accuracy 9")
    assert "optimistic" not in sentence


def test_a_wide_interval_is_reported_with_its_reason():
    frame = runs(["best"])[:2].assign(score=[0.1, 0.9])
    assert said(frame) == (
        "best reached accuracy 50.0% (95 % interval: 0.0 to 100.0; too few runs to say more)."
    )


def test_methods_say_how_models_were_compared():
    frame = runs(["best", "near", "far"])
    facts = dict(methods._comparison(tables(frame), FACTS))
    assert facts[f"{FACTS.metric} compared"] == "each model and schedule with the best one"
    assert "Nadeau and Bengio" in facts["test"] and "Holm" in facts["correction"]
    assert facts["intervals"].endswith("on a logit scale")
    assert not [*methods._comparison(tables(runs(["best"])), FACTS)]


@pytest.mark.parametrize("note", ["", "contended"])
def test_it_is_uncertain_that_nothing_is_faster_than_disturbed_runs(note):
    setups = pd.DataFrame(
        {
            **{"model": "mlp", "dataset": "d", "strategy": ["serial", "ddp"], "nodes": 1},
            **{"workers": [1, 2], "threads": 1, "train_size": "all", "cores": [1, 2], "runs": 2},
            **{"samples_per_second": [9.0, 5.0], "slowest": 4.0, "fastest": 9.0},
            **{
                "speedup": [1.0, 0.6],
                "note": [None, note or None],
                "conditions": "packed, p, torch t",
            },
        }
    )
    (sentence,) = verdict._speeds({"speed_table": setups}, FACTS)
    assert ("is unknown, because the runs were disturbed" in sentence) == bool(note)
    assert ("nothing trains a single run faster than serial." in sentence) == (not note)
