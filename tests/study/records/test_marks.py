"""Marks say to Snakemake what is there; and what it then says, and makes, is as anybody expects."""

import os
import re
import shutil
import time

import pytest
import yaml
from project import RUNS, copy, miniature

from allcores_study.records import marks

# Two folds of four small candidates.
SELECTING = """
models:
  mlp:
    {hidden: [[8], [16]], batch_size: 16, epochs: 3, optimizer: {name: sgd, lr: [0.01, 0.1]}}
datasets:
  tiny: {name: fake, count: 60, test: 0, size: 8, classes: 3}
studies:
  first: {datasets: [tiny], folds: 2, models: [mlp], select: 2}
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


@pytest.fixture
def project(tmp_path):
    """A copy of the miniature study, whose report is still to be made."""
    project = miniature().copied(tmp_path / "moved")
    shutil.rmtree(project.results / "studies")
    return project


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
    assert planned["train_several"] >= 2, "the chosen runs after those that they compare"
    said = project.call()
    assert "Updating checkpoint dependencies" not in said
    done = steps(project)
    assert len({total for _, total in done}) == 1, "it stays the same while they are done"
    assert done[-1][0] == done[-1][1]
    assert project.planned() == {}
    # Four candidates on two inner folds of each of two folds, and the chosen runs.
    assert "18 runs trained, 0 of them diverged; 0 missing" in said


def test_one_more_candidate_trains_what_depends_on_it(tmp_path):
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    project.config.write_text(yaml.safe_dump(config))
    project.call("--omit-from", "report_first")
    config["models"]["mlp"]["optimizer"]["lr"].append(1e-9)
    project.config.write_text(yaml.safe_dump(config))
    # Two new ones in each fold, and the chosen runs, which choose again.
    assert "\n10 runs trained" in project.call("--omit-from", "report_first")
    assert project.planned("--omit-from", "report_first") == {}


def test_studies_that_compare_the_same_candidates_train_each_run_once(tmp_path):
    """Two that select alike among them, and one that trains all."""
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    config["models"]["mlp"]["hidden"] = [8]
    (first,) = config["studies"].values()
    config["studies"] |= {"second": first | {"curves": True}}
    config["studies"] |= {"all": {"datasets": ["tiny"], "folds": 2, "models": ["mlp"]}}
    project.config.write_text(yaml.safe_dump(config))
    # In two folds, two candidates: two inner runs each, each of them as it is, and the chosen one.
    of_runs = ("--omit-from", "report_first", "report_second", "report_all")
    assert "\n14 runs trained" in project.call(*of_runs)
    assert project.planned(*of_runs) == {}


@pytest.mark.parametrize("changes", [{"select": 3}, {"metrics": ["log_loss"]}])
def test_studies_that_choose_differently_are_refused(tmp_path, changes):
    """The chosen runs have one path, that of the swept model."""
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    study = config["studies"]["first"]
    config["studies"]["second"] = study | changes
    project.config.write_text(yaml.safe_dump(config))
    said = project.call(expect=1)
    assert "studies.second" in said and "Traceback" not in said


def test_what_follows_from_forced_runs_is_made_again(tmp_path):
    project = copy(tmp_path)
    config = yaml.safe_load(SELECTING)
    config["runs_per_job"] = 1
    project.config.write_text(yaml.safe_dump(config))
    assert "\n18 runs trained" in project.call("--omit-from", "report_first")
    assert "\n18 runs trained" in project.call("--forcerun", "train")
    assert project.planned() == {}, "choices and report are of the new results"
