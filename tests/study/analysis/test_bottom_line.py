"""No sentence contradicts its table, whatever is missing, diverged, disturbed or mixed."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_best_models import SCORES, said, table
from test_best_models import runs as runs_of_models
from test_tables import FACTS, RUNS, made, runs_of
from test_verdict import compared, frames_of, packed, read_back, said_first, speeds, with_threads

from allcores_study.analysis import comparison, methods, products, style, verdict, wording


def test_a_model_that_lacks_runs_is_not_ranked():
    """Its mean may be the best for want of its worst fold."""
    scores = {"lucky": [0.90, 0.91, 0.90], "steady": [0.95, 0.961, 0.949, 0.60]}
    frame = pd.concat(
        runs_of([made("serial", 1, fold, score, 9.0) for fold, score in enumerate(values)]).assign(
            model=name
        )
        for name, values in scores.items()
    )
    ranking = table(frame).set_index("model")
    assert list(ranking.index) == ["steady", "lucky"]
    assert ranking["finding"]["lucky"] == "not ranked: some of its runs are missing"
    sentence = said(frame)
    assert sentence.startswith("steady scored best: accuracy")
    assert "lucky is not ranked, because runs are missing." in sentence
    assert "worse" not in sentence
    (sentence,) = verdict._best_models(
        table(frame[(frame["model"] == "lucky") | (frame["split"] != "fold 1 of 2")]), FACTS
    )
    assert sentence == "No model is ranked, because each lacks some scores."


@given(
    st.lists(st.sampled_from(["there", "missing", "diverged", "undefined"]), min_size=12),
    st.integers(0, 10**6),
)
def test_no_model_is_called_worse_that_the_table_calls_better(states, seed):
    random = np.random.default_rng(seed)
    names = list(SCORES)[:3]
    frame = runs_of_models(names).assign(score=random.uniform(0.5, 1, 12))
    states = np.array(states[:12])
    frame.loc[states == "undefined", "score"] = np.nan
    frame.loc[states == "diverged", ["score", "diverged"]] = np.nan, "epoch 1"
    frame = frame[states != "missing"]
    if frame.empty:
        return
    ranking = table(frame)
    assert not ranking.duplicated("model").any()
    significant = ranking[ranking["finding"] == comparison.DIFFERS]
    assert (significant["difference"] < 0).all()
    best = ranking[ranking["finding"] == "best"]
    if len(best):
        ranked = ranking[~ranking["finding"].str.startswith("not ranked")]
        assert best["score"].iloc[0] == ranked["score"].max()


SETUPS = [("serial", 1), ("serial", 2), ("ddp", 1), ("ddp", 2), ("ring", 2), ("accelerator", 1)]


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.sampled_from(SETUPS), st.integers(1, 40), st.booleans(), st.booleans()),
        min_size=2,
        max_size=9,
    )
)
def test_the_fastest_of_the_table_is_named(drawn):
    """Or the table has nothing that is faster than the baseline."""
    metrics = []
    for (strategy, workers), seconds, is_packed, contended in drawn:
        one = packed(made(strategy, workers, 0, 0.8, float(seconds)), is_packed)
        one["settings"] = one["settings"] | {"seed": len(metrics)}
        one["cores"] = one["cores"] | {"contended": contended}
        metrics.append(one)
    frames = frames_of(metrics)
    speed_table, text = frames["speed_table"], " ".join(verdict._speeds(frames, FACTS))
    assert "  " not in text
    top = speed_table.loc[speed_table["speedup"].fillna(0).idxmax()]
    if top["speedup"] > 1 and "speeds are not compared" not in text:
        assert style.setup_text(top) in text
    for name in ("nothing trains a single run faster", "trains a single run fastest"):
        if name in text:
            assert wording.base_of(speed_table, FACTS) is not None


def test_setups_that_mix_conditions_are_not_compared():
    mixed = [packed(one, number % 2) for number, one in enumerate(RUNS)]
    rows = speeds(mixed)
    assert list(rows["note"]) == ["other conditions"] * 2
    assert rows["speedup"].isna().all()
    (sentence,) = verdict._speeds({"speed_table": read_back(rows)}, FACTS)
    assert sentence.startswith("mlp: speeds are not compared, because the setups were timed under")


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({}, "(uncertain: each was timed alone, and runs side by side slow each other down)"),
        ({"contended": True}, "(uncertain: the runs were disturbed)"),
    ],
)
def test_what_holds_of_many_runs_is_doubted(change, doubt):
    runs = [one | {"cores": one["cores"] | change} for one in RUNS]
    assert said_first(runs)[0].endswith(f"1 core each, side by side {doubt}.")


def test_a_run_that_was_stopped_is_no_slower_and_is_noted():
    stopped = [made("serial", 1, fold, 0.8, 10.0) for fold in range(2)]
    epochs = stopped[0]["epochs"]
    epochs[1:] = [epochs[1] | {"epoch": number, "seconds": 1.0} for number in range(2, 6)]
    epochs[3] = epochs[3] | {"seconds": 100.0}
    stopped[0]["cores"] = stopped[0]["cores"] | {"stopped_seconds": 99.0}
    (row,) = speeds(stopped[:1]).to_dict("records")
    assert (row["samples_per_second"], row["note"]) == (100.0, "stopped")
    frame = runs_of(stopped)
    assert frame["lasted_seconds"].tolist() == [101.0, 200.0]
    assert any("1 run stood still for up to 99 s" in line for line in verdict.of_conditions(frame))


def test_a_difference_that_no_score_has_is_not_called_possible():
    metric = FACTS.metric
    assert wording.possible(4.321, metric) == "the runs are too few to say how much it may differ"
    assert wording.possible(0.032, metric) == "the 95 % interval reaches 3.2 points"
    assert compared(RUNS)["at_most"].iloc[0] > 0.5
    assert "points is possible" not in said_first(RUNS)[0]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {"whole": [0.8] * 4, "undefined": [0.9, *[np.nan] * 3], "missing": [0.95]},
            "of 3 candidates, whole has the best accuracy, 80.00%",
        ),
        (
            {"a": [np.nan] * 2, "b": [np.nan] * 2, "c": [0.7]},
            "no candidate has a score in all of its runs.",
        ),
    ],
)
def test_a_candidate_that_lacks_scores_is_not_the_best(scores, said):
    module = products.load("sweep_table")
    rows = [
        {"candidate": name, "score": score, "chosen": None, "epochs": 1, "core_seconds": 1.0}
        | dict.fromkeys(("dataset", "model", "schedule", "strategy", "train_size"), "x")
        | {"nodes": 1, "workers": 1, "threads": 1, "split": f"fold {fold}"}
        for name, values in scores.items()
        for fold, score in enumerate(values)
    ]
    (sentence,) = module.sentences(module.table(pd.DataFrame(rows)), FACTS)
    assert said in sentence


@pytest.mark.parametrize(("datasets", "is_short"), [(6, False), (7, True)])
def test_of_many_sweeps_it_is_told_where_to_look(datasets, is_short):
    module = products.load("sweep_table")
    rows = [
        {"candidate": name, "score": 0.5, "chosen": name == "a", "epochs": 1, "core_seconds": 3600}
        | dict.fromkeys(("model", "schedule", "strategy", "train_size"), "x")
        | {"nodes": 1, "workers": 1, "threads": 1, "dataset": f"d{number}"}
        for name in ("a", "b")
        for number in range(datasets)
    ]
    table = module.table(pd.DataFrame(rows))
    told, costs = list(module.chosen(table)), list(module.sentences(table, FACTS))
    assert len(told) == len(costs) == (1 if is_short else datasets)
    if is_short:
        assert "In each of 7 sweeps, a candidate was chosen" in told[0]
        assert costs[0].startswith("Choosing took 14 core-hours.")


def test_the_baseline_is_one_setup():
    """Of two on as few cores the one with most runs: else folds of both are taken for one."""
    one = [made("serial", 2, 1, 0.8, 9.0)]
    two = [with_threads(made("serial", 1, fold, 0.9, 9.0), 2) for fold in range(2)]
    base = comparison.of_baseline(runs_of([*one, *two]), "serial")
    assert base["threads"].tolist() == [2, 2]


def test_models_of_different_precisions_are_named():
    runs = runs_of(RUNS)
    assert not any("precision" in sentence for sentence in verdict.of_conditions(runs))
    runs["precision"] = ["fp32", "fp32", "bf16", "bf16"]
    said = " ".join(verdict.of_conditions(runs.assign(model=["mlp", "mlp", "lenet", "lenet"])))
    assert "in different precisions (fp32: mlp; bf16: lenet). bf16 rounds" in said


def test_a_row_of_other_conditions_is_no_proof_of_noise():
    other = [made("ddp", 1, fold, 0.8, 2.0) for fold in range(2)]
    rows = [*map(packed, RUNS), *other]
    (sentence,) = verdict._speeds(frames_of(rows), FACTS)
    assert "(timed under other conditions and left out: ddp)" in sentence


def test_a_score_that_is_not_defined_has_not_diverged():
    frame = runs_of_models(["best"]).assign(score=np.nan)
    assert said(frame) == "best reached accuracy not defined in any run."


def test_parameters_of_a_model_are_those_of_its_runs():
    counts = pd.DataFrame({"min": [97, 5], "max": [193, 5]}, index=["mlp", "swept-lr0.1"])
    assert methods._of_parameters(counts, "mlp") == ", 97 to 193 parameters"
    assert methods._of_parameters(counts, "swept-lr0.1") == ", 5 parameters"
    assert methods._of_parameters(counts, "other") == ""
