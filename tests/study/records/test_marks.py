"""Marks say to Snakemake what is there; and what it then says, and makes, is as anybody expects."""

import itertools
import os
import re
import time
from collections import Counter

import pytest
import yaml
from project import RUNS, copy

from allcores_study.config import candidates, grid, schema, sweeps
from allcores_study.records import marks, run_files

# Two folds of four small candidates, of which two go on after an epoch.
SELECTING = """
models:
  mlp:
    {hidden: [[8], [16]], batch_size: 16, epochs: 3, optimizer: {name: sgd, lr: [0.01, 0.1]}}
datasets:
  tiny: {name: synthetic, count: 60, test: 0, size: 8, classes: 3}
studies:
  first: {datasets: [tiny], folds: 2, models: [mlp], select: 2, halving: 3}
precision: fp32
memory_format: contiguous
"""


def names_in(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_mark_that_is_there_is_asked_for_only_while_its_result_is_valid(tmp_path):
    stem = str(tmp_path / "made")
    assert marks.wanted(stem, "0" * 8, is_valid=False) == f"{stem}.00000000"
    assert marks.wanted(stem, "0" * 8, is_valid=True) is None, "it has none, and needs none"
    marks.put(f"{stem}.00000000")
    assert marks.wanted(stem, "0" * 8, is_valid=True) == f"{stem}.00000000"
    assert marks.wanted(stem, "1" * 8, is_valid=False) == f"{stem}.11111111"
    assert marks.wanted(stem, "0" * 8, is_valid=False) == f"{stem}.00000000-2"
    marks.put(f"{stem}.00000000-2")
    assert names_in(tmp_path) == ["made.00000000-2"], "the earlier one is gone"
    assert marks.wanted(stem, "0" * 8, is_valid=True) == f"{stem}.00000000-2"
    assert marks.wanted(stem, "0" * 8, is_valid=False) == f"{stem}.00000000-3"


def test_other_files_beside_a_mark_are_left_alone(tmp_path):
    names = ["made.json", "made.0000000", "unmade.00000000", "made.00000000.log"]
    for name in names:
        (tmp_path / name).touch()
    marks.put(tmp_path / "made.11111111")
    assert names_in(tmp_path) == sorted([*names, "made.11111111"])


def test_only_what_is_dated_in_the_future_is_dated_back(tmp_path):
    past, future = tmp_path / "past", tmp_path / "future"
    for file, when in ((past, 1000), (future, time.time() + 9000)):
        file.touch()
        os.utime(file, (when, when))
    marks.date_back([past, future, tmp_path / "gone"])
    assert past.stat().st_mtime == 1000
    assert future.stat().st_mtime <= time.time()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("marks"))
    project.call("--until", "train")
    return project


@pytest.fixture
def project(finished, tmp_path):
    """A copy of the miniature study, whose report is still to be made."""
    return finished.copied(tmp_path / "moved")


def test_summary_and_dag_show_what_is_there(project):
    """All runs are in the graph, made or not, and what each of them depends on."""
    lines = project.call("--summary").splitlines()
    of_runs = [line for line in lines if "/runs/" in line]
    assert len(of_runs) == RUNS
    assert all("\tno update" in line for line in of_runs), of_runs[0]
    report = next(line for line in lines if line.startswith("results/mine/studies/first/made."))
    assert "\tmissing\t" in report
    assert "\tupdate pending" in report
    drawn = project.call("--dag")
    assert len(re.findall(r'label = "train', drawn)) == RUNS
    assert len(re.findall(r"\d+ -> \d+", drawn)) > 3 * RUNS, "data, folds, report and all"


def test_rules_are_forced_and_left_out_as_anywhere(project):
    assert project.planned() == {"report_first": 1, "all": 1, "total": 2}
    assert project.planned("--until", "train") == {"total": 0}
    assert project.planned("--omit-from", "report_first") == {}
    assert project.trains("--forcerun", "train") == RUNS
    planned = project.planned("--forcerun", "prepare_dataset")
    assert planned["prepare_dataset"] == 1
    assert "train" not in planned, "the same data train nothing"
    everything = project.planned("--forceall")
    assert everything["train"] == RUNS
    assert everything["assign_folds"] == 1
    project.configure(lambda config: config["models"]["mlp"].update(epochs=3))
    assert project.planned("report_first")["train"] == RUNS / 2, "half of the runs are mlp's"


def test_what_is_forced_is_made(project):
    (data,) = (project.results / "data" / "tiny").glob("made.*")
    info = data.with_name("dataset.json")
    before = info.stat().st_mtime_ns
    project.call("--until", "prepare_dataset", "--forcerun", "prepare_dataset")
    assert info.stat().st_mtime_ns > before
    runs = list((project.results / "runs").rglob("metrics.json"))
    times = {file: file.stat().st_mtime_ns for file in runs}
    assert "8 runs trained" in project.call("--until", "train", "--forcerun", "train")
    assert all(file.stat().st_mtime_ns > times[file] for file in runs)


def test_a_deleted_mark_is_no_loss(project):
    for mark in (project.results / "runs").rglob("made.*"):
        mark.unlink()
    assert project.planned() == {"report_first": 1, "all": 1, "total": 2}


def steps(project):
    """How many jobs the last call of Snakemake had done of how many, as its log says at the end."""
    logs = sorted((project.folder / ".snakemake" / "log").glob("*.log"))
    return [
        tuple(map(int, found))
        for found in re.findall(r"(\d+) of (\d+) steps", logs[-1].read_text())
    ]


def test_all_jobs_of_a_selection_are_known_from_the_start(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(SELECTING)
    planned = project.planned()
    assert planned["select_candidate"] == 4, "two rungs in two folds"
    said = project.call()
    assert "Updating checkpoint dependencies" not in said
    assert "30 missing" not in said
    done = steps(project)
    assert len({total for _, total in done}) == 1, "it stays the same while they are done"
    assert done[-1][0] == done[-1][1]
    assert project.planned() == {}
    assert "select_candidate" in project.call("--rulegraph")
    # 8 runs on the first rung of a fold, 4 on the second, and the final one.
    assert "26 runs trained, 0 of them diverged; 0 missing" in said


def test_one_more_candidate_trains_what_depends_on_it(tmp_path):
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    project.config.write_text(yaml.safe_dump(config))
    project.call("--omit-from", "report_first")
    config["models"]["mlp"]["optimizer"]["lr"].append(1e-9)
    project.config.write_text(yaml.safe_dump(config))
    # Two new ones on the first rung of each fold, which are worse than the others: who goes on is
    # there, and so are the final runs.
    assert "\n8 runs trained" in project.call("--omit-from", "report_first")
    assert project.planned("--omit-from", "report_first") == {}


def test_studies_that_may_choose_the_same_run_train_it_once(tmp_path):
    """Two that select among the same candidates by other inner folds, and one that trains all."""
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    config["models"]["mlp"]["hidden"] = [8]
    (first,) = config["studies"].values()
    del first["halving"]
    config["studies"] |= {"second": first | {"select": 3}}
    config["studies"] |= {"all": {"datasets": ["tiny"], "folds": 2, "models": ["mlp"]}}
    project.config.write_text(yaml.safe_dump(config))
    said = project.call()
    # Two candidates in two folds: two and three inner runs each, and each of them as it is.
    assert "\n24 runs trained, 0 of them diverged; 0 missing" in said
    assert project.planned() == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"models": ["mlp-hidden8-lr0.01", "mlp-hidden8-lr0.1"]}),
        ({}, {"models": ["mlp-hidden16-lr0.1", "mlp-hidden8-lr0.01"]}),
        ({"halving": 3}, {"halving": 2}),
    ],
    ids=["fewer candidates", "fewer, the first another one", "other rungs"],
)
def test_choices_that_overlap_train_each_run_once(tmp_path, one, other):
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    study = config["studies"]["first"]
    del study["halving"]
    config["studies"] = {"first": study | one, "second": study | other}
    project.config.write_text(yaml.safe_dump(config))
    said = project.call()
    runs = len(run_files.below(project.results))
    assert f"\n{runs} runs trained, 0 of them diverged; 0 missing" in said
    assert project.planned() == {}


@pytest.mark.parametrize("search", [{}, {"search": {"sampler": "tpe", "trials": 24, "at_once": 8}}])
def test_rungs_that_train_equally_long_wait_for_each_other(tmp_path, search):
    """Three rungs of an epoch each: what goes on to the third is in the slots of the second."""
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    rates = [0.01 * count for count in range(1, 17)]
    config["models"]["mlp"] |= {"hidden": [8], "optimizer": {"name": "sgd", "lr": rates}}
    if search:
        config["models"]["mlp"] |= search | {"optimizer": {"name": "sgd", "lr": {"log": [0.01, 1]}}}
    study = config["studies"]["first"] | {"halving": 2}
    config["studies"] = {"first": study}
    if not search:  # which one study makes
        config["studies"] |= {"second": study | {"halving": 3}}
    project.config.write_text(yaml.safe_dump(config))
    assert project.planned()["report_first"] == 1


@pytest.mark.parametrize("epochs", [3, 8, 9])
@pytest.mark.parametrize("halvings", itertools.combinations((None, 2, 3, 4), 2))
def test_no_run_is_in_slots_of_two_groups(epochs, halvings):
    """Of two studies whose rungs differ, except for what one of them trains without a choice."""
    config = schema.defaults() | yaml.safe_load(SELECTING)
    rates = [0.01 * count for count in range(1, 18)]
    optimizer = {"name": "sgd", "lr": rates}
    config["models"]["mlp"] |= {"epochs": epochs, "hidden": [8], "optimizer": optimizer}
    study = config["studies"]["first"]
    del study["halving"]
    config["studies"] = {
        f"by{halving}": study | ({"halving": halving} if halving else {}) for halving in halvings
    }
    table = grid.expand(sweeps.expanded(config))
    slots = [slot for choice in table.choices.values() for slot in choice.slots]
    known = {
        path
        for last in table.selections.values()
        for paths in last.rungs[0].inner.values()
        for path in paths
    }
    found = Counter(
        path
        for rung in candidates.by_rung(slots, table.selections, table.runs)
        for group in candidates.overlapping(rung, table.choices)
        for path in {p for s in group for p in table.choices[s.choice].paths_possible(s).values()}
    )
    assert {path for path, count in found.items() if count > 1} <= known


def test_what_follows_from_forced_runs_is_made_again(tmp_path):
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    config["runs_per_job"] = 1
    project.config.write_text(yaml.safe_dump(config))
    assert "\n26 runs trained" in project.call("--omit-from", "report_first")
    assert "\n26 runs trained" in project.call("--forcerun", "train")
    assert project.planned() == {}, "choices and report are of the new results"


def test_results_without_marks_get_them(project):
    """As results of an earlier version have none, which then cannot be forced."""
    for mark in [*project.results.rglob("made.*[0-9a-f]"), *project.results.rglob("2folds*.*")]:
        if mark.suffix != ".json":
            mark.unlink()
    assert project.planned("--forcerun", "prepare_dataset")["total"] == 2
    project.call()
    assert project.planned("--forcerun", "prepare_dataset")["prepare_dataset"] == 1
    assert len(list((project.results / "runs").rglob("made.*"))) == RUNS
