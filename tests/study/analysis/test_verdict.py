"""From tidy tables to what is said: numbers that can be checked by hand."""

import dataclasses
import io
import math
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from project import MINIATURE
from test_tables import FACTS, RUNS, made, runs_of

from allcores.files import write_json
from allcores_study.analysis import comparison, products, style, tidy, verdict
from allcores_study.analysis.study import log_of_failure
from allcores_study.config import grid
from allcores_study.records.results_folder import ResultsFolder


def p_of_4_degrees(t):
    """Student's two-sided p in closed form (Abramowitz and Stegun 26.7.4)."""
    angle = math.atan(t / 2)
    return 1 - math.sin(angle) * (1 + math.cos(angle) ** 2 / 2)


def test_corrected_t_test():
    mean, low, high, p = comparison.corrected_t_test([0.01, 0.02, 0.03, 0.02, 0.02], 0.25)
    # s^2 = 5e-5; (1/5 + 1/4) s^2 = 2.25e-5; the 97.5 % point of 4 degrees of freedom is 2.77645.
    error = math.sqrt(2.25e-5)
    assert mean == pytest.approx(0.02)
    assert (low, high) == pytest.approx((0.02 - 2.77645 * error, 0.02 + 2.77645 * error), rel=1e-4)
    assert p == pytest.approx(p_of_4_degrees(0.02 / error))


def test_without_spread_nothing_can_be_said():
    # Two runs that differ by the same one image are no proof that all would.
    for differences in ([0.1], [0.0, 0.0, 0.0], [0.1, 0.1, 0.1]):
        mean, *others = comparison.corrected_t_test(differences, 0.25)
        assert mean == pytest.approx(differences[0])
        assert np.isnan(others).all()


def test_holm():
    p_corrected = comparison.holm([0.01, 0.04, np.nan, 0.03])
    assert p_corrected == pytest.approx([0.03, 0.06, np.nan, 0.06], nan_ok=True)
    assert comparison.holm([0.9, 0.8]) == pytest.approx([1, 1])


def scores_of(metrics):
    return products.load("accuracy_table").table(runs_of(metrics), FACTS)


def compared(metrics):
    table = scores_of(metrics)
    return table[table["pairs"].notna()].reset_index(drop=True)


def test_scores_are_compared_with_the_baselines():
    (row,) = compared(RUNS).to_dict("records")
    # Differences -0.1 and 0, 10 held out for 100 trained on: sqrt((1/2 + 1/10) 0.005) = 0.0547723.
    assert (row["strategy"], row["pairs"]) == ("ddp", 2)
    assert row["difference"] == pytest.approx(-0.05)
    reach = 12.7062 * 0.0547723
    assert (row["low"], row["high"]) == pytest.approx((-0.05 - reach, -0.05 + reach), rel=1e-5)
    assert row["at_most"] == pytest.approx(0.05 + reach, rel=1e-5)
    assert (
        row["p"]
        == row["p_corrected"]
        == pytest.approx(1 - 2 / math.pi * math.atan(0.05 / 0.0547723), rel=1e-4)
    )
    assert row["finding"] == comparison.NOT_SIGNIFICANT


def test_seeds_on_a_fixed_test_set_resample_nothing():
    runs = runs_of(RUNS).assign(split="test", seed=[0, 1, 0, 1])
    _, row = products.load("accuracy_table").table(runs, FACTS).to_dict("records")
    # As above, but sqrt(0.005 / 2) = 0.05: t = 1.
    assert row["p"] == pytest.approx(0.5)


def test_pairs_agree_in_fold_whatever_the_order():
    names = ["difference", "low", "high", "p"]
    assert compared(RUNS[::-1])[names].equals(compared(RUNS)[names])


def speeds(metrics):
    facts = dataclasses.replace(FACTS, is_timed=True)
    return products.load("speed_table").table(runs_of(metrics), tidy.epochs(metrics), facts)


def read_back(table):
    """As it comes out of its CSV."""
    return pd.read_csv(io.StringIO(table.to_csv(index=False)))


def packed(metrics, is_packed=True):
    return metrics | {"conditions": metrics["conditions"] | {"exclusive": not is_packed}}


def notes_on_speed(metrics):
    return list(products.load("speed_table").sentences(read_back(speeds(metrics))))


def test_it_is_said_that_runs_were_packed():
    assert notes_on_speed(RUNS) == []
    (said,) = notes_on_speed([*map(packed, RUNS)])
    assert said.startswith("Runs were packed: a run on few cores was slowed down")


def with_threads(metrics, threads):
    changed = {"threads_per_worker": threads}
    return metrics | {
        "settings": metrics["settings"] | changed,
    }


def test_the_second_baseline_is_the_best_of_serial_on_as_many_cores():
    two = with_threads(made("serial", 1, 0, 0.8, 7.0), 2)
    table = speeds([*RUNS, two])
    one, ddp, threads = table.to_dict("records")
    assert (one["over_best"], threads["over_best"]) == (1, 1)
    assert ddp["over_best"] == pytest.approx(ddp["samples_per_second"] / (100 / 7))


def test_rows_that_had_too_few_cores_are_marked():
    crowded = made("ddp", 4, 0, 0.8, 9.0)
    contended = made("ring", 2, 0, 0.8, 9.0)
    contended["cores"] = contended["cores"] | {"contended": True}
    table = speeds([*RUNS, crowded, contended])
    assert list(table["note"]) == ["", "", "oversubscribed", "contended"]
    (why,) = notes_on_speed([*RUNS, crowded, contended])
    assert why.startswith("Contended: for more than a tenth of the time, other processes")


def frames_of(metrics):
    frames = {"accuracy_table": scores_of(metrics), "runs": runs_of(metrics)}
    frames["models_table"] = products.load("models_table").table(runs_of(metrics), FACTS)
    return frames | {"speed_table": read_back(speeds(metrics))}


def said_first(metrics):
    *said, accurate = verdict.bottom_line(frames_of(metrics), FACTS)
    assert accurate.startswith("mlp reached accuracy ")
    return said


def test_the_bottom_line():
    assert said_first(RUNS) == [
        "mlp: ddp, 2 workers trains a single run fastest, 2.00 times as fast as serial. Its "
        "accuracy does not differ significantly from that with serial; the runs are too few to say "
        "how much it may differ. For many runs, serial trains the most per hour, 1 core each, side "
        "by side (uncertain: each was timed alone, and runs side by side slow each other down)."
    ]
    assert said_first([*map(packed, RUNS)])[0].endswith("1 core each, side by side.")
    slow = [made("ddp", 2, fold, 0.8, 30.0 + fold) for fold in range(2)]
    (said,) = said_first(RUNS[:2] + slow)
    assert said.startswith("mlp: nothing trains a single run faster than serial. For many")
    fast = [made("ddp", 2, fold, [0.8, 0.9][fold], 3.0) for fold in range(2)]
    (said,) = said_first(RUNS[:2] + fast)
    assert "Its accuracy is the same as with serial in every pair of runs." in said
    assert "ddp, 2 workers trains the most per hour: 16.7 samples/s per core against 9.2" in said
    assert "times as fast as serial (uncertain: too few runs)." in said_first([RUNS[0], RUNS[2]])[0]
    assert said_first(RUNS[:2]) == [], "one setup leaves nothing to say of speeds"


def test_timings_of_other_conditions_are_not_compared():
    beside = packed(made("ddp", 2, 0, 0.8, 5.0))
    table = speeds([*RUNS[:2], beside])
    assert list(table["note"]) == ["", "other conditions"]
    assert math.isnan(table["speedup"].iloc[1])
    (said,) = verdict._speeds({"speed_table": read_back(table)}, FACTS)
    assert said.startswith("mlp: speeds are not compared, because the setups were timed")
    assert not [*verdict.of_conditions(runs_of([*RUNS[:2], beside]), is_timed=False)]
    mixed = list(verdict.of_conditions(runs_of([*RUNS[:2], beside])))
    assert mixed[0] == (
        "The runs differ in whether they were alone on the machine, which affects timings: "
        "yes (2), no (1)."
    )
    other = beside | {"machine": beside["machine"] | {"host": "k", "processor": "q"}}
    mixed = list(verdict.of_conditions(runs_of([*RUNS[:2], other])))
    assert "the processor, which affects timings: p (2), q (1)" in mixed[1]


def test_the_best_of_the_baseline_is_one_of_the_same_conditions():
    """A serial run on two cores that was packed is no rival of one that was alone."""
    two = packed(with_threads(made("serial", 1, 0, 0.8, 1.0), 2))
    serial, ddp, threads = speeds([*RUNS, two]).to_dict("records")
    assert (serial["over_best"], ddp["over_best"]) == (1, pytest.approx(2))
    assert threads["note"] == "other conditions"


def test_without_its_baseline_a_study_says_so():
    table = read_back(speeds(RUNS[2:]))
    assert table["note"].isna().all()
    (said,) = verdict._speeds({"speed_table": table}, FACTS)
    assert "the baseline serial is missing" in said


def test_what_is_missing_and_what_diverged_is_said():
    missing = pd.DataFrame({"run": ["digits/lenet/fold0"], "log": [None]})
    (said,) = verdict.of_missing(missing, runs_of(RUNS))
    assert said.startswith("INCOMPLETE: 1 run of 5 failed and is missing here (1 of lenet), for")
    assert said.endswith("it was not started, because something that it needs had failed.")
    broken = RUNS[1] | {"diverged": {"epoch": 2, "step": 7, "lr": 0.5}}
    (said,) = verdict.of_missing(missing[:0], runs_of([RUNS[0], broken]))
    assert (
        "mlp (cosine) with serial: 1 run, the first in epoch 2, step 7, learning rate 0.5" in said
    )


def at(metrics, started, ended):
    session = {"started": started, "ended": ended}
    return metrics | session | {"sessions": [session]}


def test_packing_table():
    single = [at(m, 100.0 + 10 * i, 110.0 + 10 * i) for i, m in enumerate(RUNS[:2])]
    packed = [at(m, 500.0, 512.0 + i) for i, m in enumerate(RUNS[:2])]
    unasked = at(made("ring", 2, 0, 0.8, 9.0), 130.0, 160.0)
    table = products.load("packing_table").table(
        runs_of(packed), runs_of([*single, unasked]), FACTS
    )
    part, whole = table.to_dict("records")
    # 20 s one after the other; side by side on 2 cores 12 and 13 s.
    assert (part["one_by_one_seconds"], part["packed_seconds"]) == (20, 13)
    assert (part["pairs"], part["difference"]) == (2, 0)
    assert (whole["one_by_one_seconds"], whole["packed_seconds"], whole["runs"]) == (20, 13, 2)
    assert whole["over_bound"] == pytest.approx(13 / 12.5)
    said = list(products.load("packing_table").sentences(read_back(table)))
    assert said == [
        "Packing 2 runs onto the cores is 1.54 times as fast as running them one after the other "
        "with serial: 13 s against 20 s."
    ]


def test_runs_without_a_counterpart_do_not_count_as_packed_or_not():
    single = [at(m, 100.0 + 10 * i, 110.0 + 10 * i) for i, m in enumerate(RUNS[:2])]
    other = [made("serial", 1, fold, 0.8, 9.0) for fold in range(2)]
    for run in other:
        run["settings"] = run["settings"] | {
            "model": {"label": "wide", "name": "mlp", "options": {}}
        }
    packed = [at(m, 500.0 + 10 * (i // 2), 510.0 + 10 * (i // 2)) for i, m in enumerate(RUNS[:2])]
    packed += [at(m, 510.0, 520.0) for m in other]
    packing_table = partial(products.load("packing_table").table, facts=FACTS)
    table = packing_table(runs_of(packed), runs_of(single))
    part, whole = table.to_dict("records")
    assert (part["speedup"], whole["speedup"], whole["runs"]) == (2, 2, 2)
    table = packing_table(runs_of(packed), runs_of(single[:1]))
    assert table["speedup"].tolist() == [2, 2]


def test_makespan_leaves_pauses_out():
    runs = pd.DataFrame({"sessions": ["0-10", "5-12 1001-1003", "1000-1003"], "ended": 1003.0})
    assert tidy.makespan(runs) == 15


def sized(size, seconds):
    metrics = made("serial", 1, 0, 0.8, seconds)
    settings = metrics["settings"] | {"train_size": size}
    return metrics | {"settings": settings, "train_samples": size}


def test_epoch_time_by_size_is_drawn_with_its_line():
    metrics = [sized(1000, 2.5), sized(2000, 4.5), sized(4000, 8.5)]
    draw = products.load("size_figure").figure
    figure = draw(tidy.epochs(metrics), runs_of(metrics))
    (text,) = figure.axes[0].get_legend_handles_labels()[1]
    assert text.startswith("serial: 0.5 s + 2 ± ")
    style.plt.close(figure)
    assert draw(tidy.epochs(RUNS), runs_of(RUNS)) is None
    folds = [made("serial", 1, k, 0.8, 5.0) | {"train_samples": 1437 + k} for k in (0, 1)]
    assert draw(tidy.epochs(folds), runs_of(folds)) is None, "folds of unequal size"


def test_it_is_not_said_of_all_runs_that_those_of_the_baseline_diverged():
    lost = {"diverged": {"epoch": 2, "step": 7, "lr": 0.5}, "accuracy": math.nan}
    lost = [run | lost for run in RUNS[:2]]
    models = products.load("models_table")
    table = models.table(runs_of([*lost, *RUNS[2:]]), FACTS)
    (said,) = verdict._best_models(table, FACTS)
    assert said.endswith("none, since runs with serial diverged.")
    (said,) = verdict._best_models(models.table(runs_of(RUNS[2:]), FACTS), FACTS)
    assert said == "No model has a run with the baseline serial, so no score is said."


def test_target_table():
    metrics = [made("serial", 1, fold, 0.8, 10.0 + fold) for fold in range(2)]
    for run, accuracies in zip(metrics, ([0.86, 0.9], [0.2, 0.85]), strict=True):
        for epoch, accuracy in zip(run["epochs"], accuracies, strict=True):
            epoch["accuracy"] = accuracy
    metrics.append(made("ddp", 2, 0, 0.8, 10.0))
    for epoch in metrics[-1]["epochs"]:
        epoch["accuracy"] = 0.5
    table = products.load("target_table").table(tidy.epochs(metrics), FACTS)
    serial, ddp = table.to_dict("records")
    assert (serial["runs"], serial["reached"], serial["epochs"]) == (2, 2, 1.5)
    assert serial["seconds"] == pytest.approx((99 + 99 + 11) / 2)
    assert ddp["reached"] == 0


def test_what_is_said_of_staleness():
    table = pd.DataFrame({"staleness": [0, 1, 4], "updates": [5, 4, 1]})
    table = table.assign(model="mlp", strategy="hogwild", workers=2)
    (said,) = products.load("staleness_figure").sentences(table)
    assert "50% of the updates" in said
    assert "mean staleness was 0.80 updates, the largest 4" in said


def test_a_run_without_results_has_the_log_that_says_why(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), grid.expand(yaml.safe_load(MINIATURE))
    run, other, *_ = table.of("first")
    assert log_of_failure(folder, run) is None
    of_data = tmp_path / "logs" / "prepare_dataset" / f"{run.dataset.label}.{'a' * 8}.log"
    shared = Path(folder.shared_job("a" * 12, 3, "log"))
    own = tmp_path / "logs" / "train" / f"{run.path}.{'a' * 8}.log"
    for log in (of_data, own, shared):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        if log == shared:
            write_json(shared.with_suffix(".json"), {"runs": [{"output": folder.run(run.path)}]})
        assert log_of_failure(folder, run) == str(log)
    assert log_of_failure(folder, other) == str(of_data)
    Path(folder.data(run)).mkdir(parents=True)
    assert log_of_failure(folder, other) is None
