"""A search in which earlier scores suggest the next candidates."""

import json
import math
import shutil
import signal
import time

import numpy as np
import pandas as pd
import patience
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from project import copy, unexplained_columns
from test_ranges import axis as any_axis
from test_several import status

from allcores.files import read_json, write_json
from allcores_study.analysis import metrics, selection, suggestions
from allcores_study.config import candidates, checks, grid, ranges, schema, sweeps
from allcores_study.records import run_files
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.records.run_files import RunFolder
from allcores_study.serving import ensemble

FIRST = candidates.FIRST
SPACE = {"lr": {"log": [0.0001, 1.0]}, "width": {"range": [8, 64], "step": 8}, "kind": ["a", "b"]}


def told(values, mean, pruned=False, epochs=4):
    return {"values": values, "mean": mean, "pruned": pruned, "epochs": epochs}


def drawn(space, count, seed=0):
    axes = [ranges.read(found) for found in space.values()]
    return [dict(zip(space, values, strict=True)) for values in ranges.sobol(axes, count, seed)]


def suggest(told, count, space=SPACE, sign=1, seed=0):
    return suggestions.suggest(candidates.Search(space, {}, 8, seed), told, sign, count)


def of_rate(values):
    """The better, the closer the learning rate is to 0.01."""
    return -abs(math.log10(values["lr"]) + 2)


def written(axis):
    """An axis as a config has it."""
    if isinstance(axis, ranges.Values):
        return axis.listed
    found = {"log" if axis.is_log else "range": [axis.least, axis.most]}
    return found | ({"step": axis.step} if axis.step else {})


@given(st.lists(any_axis, min_size=1, max_size=3), st.integers(1, 9), st.integers(0, 9))
def test_suggestions_are_new_and_lie_in_the_space(axes, count, seed):
    space = {f"key{place}": written(axis) for place, axis in enumerate(axes)}
    total = math.prod(axis.count for axis in axes)
    before = drawn(space, min(FIRST, total), seed)
    count = min(count, total - len(before))
    scored = [told(values, float(place % 3)) for place, values in enumerate(before)]
    new = suggest(scored, count, space, seed=seed)
    assert len({json.dumps(values, sort_keys=True) for values in before + new}) == len(before + new)
    for values in new:
        for name, value in values.items():
            axis = ranges.read(space[name])
            if isinstance(axis, ranges.Values) or not (axis.is_continuous or axis.is_log):
                assert value in axis.all()
            else:
                assert axis.least <= value <= axis.most
                assert value == axis.rounded(value)


def test_what_is_told_decides_and_nothing_else():
    scored = [told(values, of_rate(values)) for values in drawn(SPACE, FIRST)]
    assert suggest(scored, 8) == suggest(scored, 8)
    assert suggest(scored, 3) == suggest(scored, 8)[:3], "more at a time change the ones before"
    assert suggest(scored, 8) != suggest(scored, 8, seed=1)
    assert suggest(scored, 8) != suggest([told(one["values"], -one["mean"]) for one in scored], 8)
    renamed = dict(reversed(SPACE.items()))
    assert suggest(scored, 8) == suggest(scored, 8, renamed)


@pytest.mark.parametrize("sign", [1, -1])
def test_suggestions_come_closer_to_the_best(sign):
    scored = [told(values, sign * of_rate(values)) for values in drawn(SPACE, FIRST)]
    for _ in range(5):
        new = suggest(scored, 8, sign=sign)
        scored += [told(values, sign * of_rate(values)) for values in new]
    distances = [-of_rate(one["values"]) for one in scored]
    assert np.median(distances[-16:]) < np.median(distances[:FIRST]) / 2, distances


def test_those_that_diverged_or_were_eliminated_are_avoided():
    """As far as all that were trained to the end have lower learning rates."""

    def lost(values, mean, pruned):
        is_high = values["lr"] > 0.01
        return told(values, mean if is_high else 0.5, pruned and is_high, 1 if is_high else 4)

    for mean, pruned in [(None, False), (0.9, True)]:
        scored = [lost(values, mean, pruned) for values in drawn(SPACE, 40)]
        lower = [values["lr"] <= 0.02 for values in suggest(scored, 16)]
        assert sum(lower) >= 12, (mean, lower)


CONFIG = """
models:
  mlp:
    {batch_size: 16, hidden: [8], epochs: 2, width: {range: [0.25, 2.0], step: 0.25},
     optimizer: {name: sgd, lr: {log: [0.001, 1.0]}},
     search: {sampler: tpe, trials: 12, at_once: 1}}
datasets: {tiny: {name: synthetic, count: 60, test: 0, size: 4, classes: 3}}
studies:
  tuned: {datasets: [tiny], folds: 2, models: [mlp], select: 2}
precision: fp32
memory_format: contiguous
"""
RUNS = 2 * (2 * 12 + 1)


def table(text):
    return grid.expand(sweeps.expanded(schema.defaults() | yaml.safe_load(text)))


def test_rounds_are_as_large_as_asked_for():
    choices = table(CONFIG).choices
    of_fold = [choice for path, choice in choices.items() if "mlp" in path and "fold0" in path]
    assert [len(choice.inner) for choice in of_fold] == [10, 1, 1]
    assert [choice.suggests for choice in of_fold] == [("mlp-trial11",), ("mlp-trial12",), ()]
    assert [choice.suggested_by for choice in of_fold] == [None, *of_fold[:2]]
    halved = CONFIG.replace("select: 2", "select: 2, halving: 3")
    halved = halved.replace("trials: 12, at_once: 1", "trials: 13, at_once: 4")
    choices = table(halved).choices
    of_fold = [choice for path, choice in choices.items() if "fold0" in path]
    assert [(len(one.slots), one.rung, one.keeps) for one in of_fold] == [
        *((8, 1, 4), (4, 2, 2), (6, 3, 3)),
        (1, 1, 1),
    ]
    assert of_fold[2].suggested_by is None, "its candidates are those of the first round"
    assert of_fold[3].suggested_by is of_fold[2]


def test_what_diverges_is_told_and_does_not_end_a_search(tmp_path):
    """On a rung all candidates of a round may diverge; at the end some must not have."""
    values = {f"mlp-trial{n}": one for n, one in enumerate(drawn(SPACE, 13), 1)}

    def files(label, score):
        folder = RunFolder(tmp_path / label)
        folder.place.mkdir(exist_ok=True)
        record = {"accuracy": score, "diverged": score is None, "cpu_seconds": 1.0, "epochs": [0]}
        write_json(folder.place / "metrics.json", record)
        return [folder]

    search = candidates.Search(SPACE, values, 2, 0)
    paths = {label: [label] for label in values}
    rung = candidates.Selection("s", "mlp", paths, paths, keeps=2, next_inner=paths, search=search)
    inner = {label: files(label, None) for label in values}
    made = selection.choose_in_search(rung, inner, values, {}, metrics.ACCURACY)
    assert made["kept"] == []
    assert all(entry["pruned"] for entry in made["candidates"].values())
    end = candidates.Selection(
        *("s", "mlp", paths, paths, rung, 2), next_inner=paths, search=search, suggests=("a", "b")
    )
    made = selection.choose_in_search(end, {}, values, made["candidates"], metrics.ACCURACY)
    assert made["kept"] == ["a", "b"] == list(made["suggested"])
    last = candidates.Selection("s", "mlp", paths, paths, end, search=search)
    before = {"early": told({}, 0.9, pruned=True), "whole": told({}, 0.7)}
    best = {label: files(label, 0.6) for label in ("mlp-trial1", "mlp-trial2")}
    made = selection.choose_in_search(last, best, values, before, metrics.ACCURACY)
    assert made["kept"] == ["whole"], "of all rounds, but none that was eliminated"
    with pytest.raises(ValueError, match="all candidates diverged"):
        lost = {label: inner[label] for label in ("mlp-trial3", "mlp-trial4")}
        selection.choose_in_search(last, lost, values, {}, metrics.ACCURACY)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("{sampler: random, trials: 20}", "found 'random'; known: tpe"),
        ("{trials: 20}", "expected sampler, trials, optionally at_once and seed"),
        ("{sampler: tpe, trials: 20, atonce: 2}", "expected sampler, trials, optionally"),
        ("20", "found 20; expected sampler"),
        ("{sampler: tpe, trials: 10}", "found 10; expected more than the 10 that are drawn"),
        ("{sampler: tpe, trials: 16, at_once: 16}", "found 16; expected more than the 16"),
        ("{sampler: tpe, trials: 99999}", "at most 9,001, since none is trained twice"),
        ("{sampler: tpe, trials: '20'}", "found '20'; expected more than"),
        ("{sampler: tpe, trials: 20, at_once: 0}", "found 0; expected a whole number from 1"),
        (
            "{sampler: tpe, trials: 111, at_once: 1}",
            "found 1; expected at least 2, for at most 100 rounds",
        ),
        ("{sampler: tpe, trials: 20, seed: x}", "found 'x'; expected a whole number from 0"),
        ("{sampler: tpe, trials: 20, seed: -1}", "found -1; expected a whole number from 0"),
        ("{sampler: tpe, trials: 20}, sample: 3", "conflicts with `sample`"),
    ],
)
def test_what_is_no_search_is_told(search, message):
    entry = "mlp: {batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: {log: [0.1, 1.0]}}, %s}"
    config = {"models": yaml.safe_load(entry % f"search: {search}"), "studies": {}}
    problems = sweeps.problems(config["models"])
    assert len(problems) == 1
    assert message in problems[0][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("width: {range: [0.25, 2.0], step: 0.25}", "width: 1"), None),
        (("{log: [0.001, 1.0]}", "0.1"), "the lists and ranges give 8; remove `search`"),
        (
            ("select: 2}", "folds: 2}"),
            "mlp has `search`, which needs `select` in each of its studies",
        ),
        (
            ("precision: fp32", "  again: {datasets: [tiny], folds: 3, models: [mlp], select: 2}"),
            "mlp is also searched for the study tuned; give this study an entry of its own",
        ),
        (
            (
                "epochs: 2, width: {range: [0.25, 2.0], step: 0.25}",
                "width: 1, epochs: {range: [1, 9]}",
            ),
            None,
        ),
        (
            (
                "epochs: 2, width: {range: [0.25, 2.0], step: 0.25}",
                "width: 1, epochs: {range: [1, 9]}",
                "halving",
            ),
            "mlp is searched over `epochs`, which conflicts with `halving`",
        ),
    ],
)
def test_what_a_study_cannot_search_is_told(change, message):
    text = CONFIG.replace(", folds: 2,", ",") if change[1].startswith("folds") else CONFIG
    text = text.replace(*change[:2])
    if change[2:]:
        text = text.replace("select: 2", "select: 2, halving: 2")
    found = checks.findings(schema.defaults() | yaml.safe_load(text), (), 2, 1)
    assert (not found) if message is None else any(message in line for line in found), found


@pytest.mark.parametrize("trials", [11, 12, 40])
def test_the_ends_of_all_ranges_are_checked_before(trials):
    """Else a search might suggest them when half of it is trained."""
    text = CONFIG.replace("{log: [0.001, 1.0]}", "{range: [-0.001, 0.1]}")
    text = text.replace("trials: 12", f"trials: {trials}").replace("[0.25, 2.0]", "[0.25, 2.5]")
    config = sweeps.expanded(schema.defaults() | yaml.safe_load(text))
    drawn = [candidate["values"] for candidate in config["swept"].values()]
    assert {"width": 2.5, "lr": 0.1} in drawn
    assert ({"width": 0.25, "lr": -0.001} in drawn) == (trials > 11)
    assert len(drawn) == trials
    few, more = (
        sweeps.expanded(yaml.safe_load(CONFIG.replace("trials: 12, at_once: 1", settings)))["swept"]
        for settings in ("trials: 13, at_once: 12", "trials: 40, at_once: 12")
    )
    assert [*few.items()][:12] == [*more.items()][:12], "those of the first round are trained"


def test_keys_of_one_name_are_told_apart():
    names = ["optimizer.lr", "loss.lr", "width"]
    assert ranges.short_names(names) == ["optimizer_lr", "loss_lr", "width"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("searched"))
    project.config.write_text(CONFIG)
    assert f"{RUNS} runs trained, 0 of them diverged; 0 missing" in project.call()
    return project


def made_in(project):
    """Path of each choice -> what it has written down, without the time that it took."""
    return {
        file.relative_to(project.results): _without_times(read_json(file))
        for file in sorted((project.results / "selections").rglob("*.json"))
    }


def _without_times(content):
    for entry in content.get("candidates", {}).values():
        del entry["core_seconds"]
    return {key: content.get(key) for key in ("kept", "suggested", "candidates")}


def weights(project):
    """Path of each run -> the bytes of its weights."""
    folder = ResultsFolder(str(project.results))
    folder.store.read_again()
    paths = [path for path in table(CONFIG).runs if folder.has(path)]
    return {path: folder.run_files(path).read("weights.pt") for path in paths}


def test_each_fold_searches_on_its_own(searched):
    """What a round suggests follows from the scores before, and is what is trained."""
    folder = ResultsFolder(str(searched.results))
    config = sweeps.expanded(schema.defaults() | yaml.safe_load(CONFIG))
    table = suggestions.table(config, folder)
    for choice in table.choices.values():
        made = folder.choice_made(choice)
        assert list(made["candidates"])[: len(choice.search.first)] == list(choice.search.first)
        if choice.suggests:
            new = suggestions.suggest(
                choice.search, made["candidates"].values(), 1, len(choice.suggests)
            )
            assert dict(zip(choice.suggests, new, strict=True)) == made["suggested"]
        for label, paths in choice.inner.items():
            for path in paths:
                settings = run_files.metrics(folder.run_files(path))["settings"]
                assert settings == json.loads(table.runs[path].to_json())
                values = made["candidates"][label]["values"]
                assert settings["model"]["options"] == {"hidden": [8], "width": values["width"]}
                assert settings["optimizer"]["options"]["lr"] == values["optimizer.lr"]
    for last in table.selections.values():
        means = {k: v["mean"] for k, v in folder.choice_made(last)["candidates"].items()}
        assert means[folder.kept_labels(last)[0]] == max(means.values())
        assert len(means) == len(last.final)
    assert searched.planned() == {}


def test_a_report_names_candidates_by_their_values(searched):
    results = searched.results / "studies" / "tuned"
    trials = pd.read_csv(results / "candidates.csv")
    assert len(trials) == 2 * 12
    names = [f"mlp-width{row.swept_width}-lr{row.swept_lr}" for row in trials.itertuples()]
    assert list(trials["candidate"]) == names
    assert [*trials["trial"]] == 2 * [*range(1, 13)]
    assert not trials["pruned"].any()
    page = (results / "report.html").read_text()
    assert ": 12 candidates, the first 10 drawn by a scrambled Sobol" in page
    assert "others suggested by Optuna&#39;s tree-structured Parzen estimator (seed 0)" in page
    (chosen, _) = trials.loc[trials["chosen"], "candidate"]
    assert f"<th>model: {chosen}</th>" in page
    assert (results / "search_figure.png").stat().st_size > 1000
    assert unexplained_columns(searched.results) == []


def test_choices_that_are_lost_are_made_again_as_they_were(searched):
    before, trained = made_in(searched), weights(searched)
    shutil.rmtree(searched.results / "selections")
    said = searched.call()
    assert "\n0 runs trained" in said, said
    assert made_in(searched) == before
    assert weights(searched) == trained


def test_the_chosen_ones_predict_together(searched):
    folder, runs = ResultsFolder(str(searched.results)), searched.results / "runs"
    selections = table(CONFIG).selections.values()
    predictors = ensemble.read(runs, "mlp")
    assert {one.run.path for one in predictors} == set(map(folder.chosen_path, selections))
    entries = [folder.choice_made(one)["candidates"] for one in selections]
    for label in entries[0]:
        if len({json.dumps(entry[label]["values"]) for entry in entries}) > 1:
            with pytest.raises(ValueError, match="in each fold; give --model mlp"):
                ensemble.read(runs, label)


def test_a_killed_search_goes_on_and_suggests_the_same(searched, tmp_path):
    project = copy(tmp_path)
    project.config.write_text(CONFIG)
    call = project.snakemake()
    patience.wait_for(lambda: list((project.results / "selections").rglob("*.json")))
    call.send_signal(signal.SIGKILL)
    call.communicate()
    time.sleep(0.1)
    project.call("--unlock")
    project.call()
    assert made_in(project) == made_in(searched)
    assert weights(project) == weights(searched)
    # More trials are added to those that there are.
    before = made_in(project)
    project.edit("mine.yaml", "trials: 12", "trials: 13")
    project.call()
    after = made_in(project)
    for path, made in before.items():
        if made["suggested"]:
            assert after[path]["suggested"].items() >= made["suggested"].items()
    # Another space begins again; what it will suggest is not said before.
    project.edit("mine.yaml", "2.0]", "1.75]")
    assert project.planned()["select_candidate"] >= 2
    assert "8 choices between candidates are to be made" in status(project)
    said = status(project, "--why")
    assert "8 of 8 choices between candidates are to be made" in said, said
    assert "mlp-trial11/" not in said
