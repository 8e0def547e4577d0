"""Results and data are kept whole: what is damaged, or of something else, is rebuilt."""

import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from project import Project, copy
from snakemake.iocontainers import Wildcards

from allcores.files import read_json, sha256
from allcores_study.campaign.run_jobs import RunJobs
from allcores_study.config import grid, settings
from allcores_study.data import folds, storage
from allcores_study.planning.estimate import Estimates
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.records.run_files import RUN_FILES
from allcores_study.watching.ledger import Ledger

ARRAYS = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  mine: {name: npz, path: mine.npz}
studies:
  first: {datasets: [mine], folds: 2, models: [mlp]}
"""

SWEEP = """
models:
  mlp: {hidden: [8], batch_size: 16, epochs: 1, optimizer: {name: sgd, lr: [0.01, 0.1]}}
datasets:
  tiny: {name: fake, count: 60, test: 0, size: 8, classes: 3}
studies:
  nested: {datasets: [tiny], folds: 2, models: [mlp], select: 2}
"""


def studying(key, value):
    """A change of a config's study."""
    return lambda config: config["studies"]["first"].update({key: value})


def save(project, seed=0, labels=None):
    images = np.random.default_rng(seed).integers(0, 256, (40, 8, 8), np.uint8)
    np.savez(project.folder / "mine.npz", images=images, labels=labels or [0, 1] * 20)


# All that a rerun is seen by; the figures would take long.
TABLE = "results/mine/studies/first/accuracy_table.csv"
DATA = ("inputs.npy", "targets.npy", "dataset.json")
# The marks of a dataset and of its folds.
OF_DATA = ("results/mine/data/mine/made", "results/mine/data/mine/2folds_seed0")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("arrays"))
    project.config.write_text(ARRAYS)
    save(project)
    project.call("report_first")
    return project


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """Another copy of the finished study, where this process also is."""
    project = finished.copied(tmp_path / "moved")
    monkeypatch.chdir(project.folder)
    return project


class Decisions:
    """What the functions of the rules ask Snakemake for, without the calls: they are asked as it
    asks them while it builds its graph.

    Attributes:
        runs: paths of the runs that are trained.
        made: what else is made: the marks that are not there, without their digests.
    """

    def __init__(self, project):
        config = settings.with_defaults(yaml.safe_load(project.config.read_text()))
        table, folder, self.told = grid.expand(config), ResultsFolder("results/mine"), []
        ledger = Ledger(config, table, folder, tell=self.told.append)
        call = SimpleNamespace(
            **{"config": config, "table": table, "folder": folder, "ledger": ledger},
            **{"is_main": True, "local_cores": None, "workflow": None},
            estimates=Estimates(table, folder, is_forked=False),
        )
        runs = RunJobs(call)
        runs.is_forced = False
        self.runs = {path for path in table.runs if not ledger.is_valid(path)}
        asked_for = set(map(ledger.run, self.runs))
        for run in table.runs.values():
            asked_for |= {*ledger.data(run), *runs.inputs(Wildcards(fromdict=run.wildcards))}
        missing = (Path(mark).with_suffix("") for mark in asked_for if not Path(mark).exists())
        self.made = {str(stem) for stem in missing if "/runs/" not in str(stem)}


def spoil(file, how):
    """Damage a file: flip a bit in the middle, and set its time back, cut it short, delete it."""
    content, status = bytearray(file.read_bytes()), file.stat()
    if how in ("delete", "folder"):
        file.unlink()
        return file.mkdir() if how == "folder" else None
    if how == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    file.write_bytes(content)
    if how == "hide":
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return None


HOW = ("flip", "cut", "delete")


def test_data_that_are_touched_or_written_again_train_nothing(project):
    (project.folder / "mine.npz").touch()
    assert project.planned("report_first") == {}
    save(project)
    assert Decisions(project).runs == set()


@pytest.mark.parametrize(
    "change",
    [lambda p: save(p, seed=1), lambda p: save(p, labels=[1, 0] * 20)],
    ids=["inputs", "labels"],
)
def test_data_that_change_train_all_whatever_snakemake_remembers(project, change):
    change(project)
    decisions = Decisions(project)
    assert len(decisions.runs) == 2
    assert decisions.made == {*OF_DATA}


def test_changed_data_are_noticed_once_snakemakes_records_are_gone(project):
    """A study that is finished, and of which a new report would publish the old numbers."""
    before = (project.folder / TABLE).read_text()
    shutil.rmtree(project.folder / ".snakemake")
    assert project.planned("report_first") == {}
    save(project, seed=1)
    output = project.call("report_first")
    assert "2 runs trained" in output
    assert (project.folder / TABLE).read_text() != before
    assert project.planned("report_first") == {}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", [*DATA, "2folds_seed0.json"])
def test_damaged_data_are_made_again_and_train_nothing(project, name, how):
    """Also where nothing was trained on them yet."""
    spoil(project.results / "data/mine" / name, how)
    decisions = Decisions(project)
    assert decisions.made == {*(OF_DATA[1:] if name.endswith("0.json") else OF_DATA)}
    assert decisions.runs == set()
    shutil.rmtree(project.results / "runs")
    assert Decisions(project).made == decisions.made


def test_a_call_makes_damaged_data_again_as_they_were(project):
    files = [project.results / "data/mine" / name for name in (*DATA, "2folds_seed0.json")]
    before = [file.read_bytes() for file in files]
    spoil(files[0], "flip")
    files[-1].unlink()
    shutil.rmtree(project.folder / ".snakemake")
    assert "0 runs trained" in project.call()
    assert [file.read_bytes() for file in files] == before
    assert project.planned() == {}


@pytest.mark.parametrize(
    ("count", "inner", "seed"), [(2, 0, 1), (3, 0, 0), (2, 2, 0)], ids=["seed", "count", "inner"]
)
def test_other_folds_in_the_place_of_a_file_are_noticed(project, count, inner, seed):
    place = project.results / "data/mine"
    assignable = folds.Assignable.of(storage.open_dataset(place))
    folds.write(place / "2folds_seed0.json", assignable, count, inner, seed)
    decisions = Decisions(project)
    assert decisions.made == {*OF_DATA[1:]}
    assert decisions.runs == set()


@pytest.mark.parametrize("how", ["flip", "hide", "cut", "folder"])
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_damaged_result_is_trained_again(project, name, how):
    assert Decisions(project).runs == set()
    file = next((project.results / "runs").rglob(name))
    spoil(file, how)
    assert {Path(path).parts[-2] for path in Decisions(project).runs} == {file.parts[-3]}


def test_a_run_is_trained_again_whatever_is_left_of_it(project):
    first, second = sorted((project.results / "runs").rglob("metrics.json"))
    second.with_name("predictions.parquet").unlink()
    planned = project.planned()
    assert (planned["train"], planned["report_first"]) == (1, 1)
    for file in (first, first.with_name("weights.pt")):
        file.write_text("damaged")
    second.unlink()
    assert "2 runs trained" in project.call("--until", "train")
    assert read_json(first)["files"]["weights.pt"] == sha256(first.with_name("weights.pt"))


def test_the_times_of_files_decide_nothing(project):
    """As after copying without times, on another file system, or by a clock that was wrong."""
    times = {"1970": [0], "2038": [2**31], "mixed": [2**31, 0, time.time() + 7200]}
    for of_clock in times.values():
        for number, file in enumerate(sorted(project.results.rglob("*"))):
            os.utime(file, (of_clock[number % len(of_clock)],) * 2)
        assert project.planned() == {}
    project.configure(lambda config: config["models"]["mlp"]["optimizer"].update(lr=0.2))
    before = (project.folder / TABLE).read_text()
    assert "2 runs trained" in project.call()
    assert (project.folder / TABLE).read_text() != before
    assert project.planned() == {}


def test_a_table_follows_its_results_whatever_came_between(project):
    """A campaign that is changed and interrupted after its training, and whose files are dated in
    the future: the tables are not those of the runs."""
    project.configure(lambda config: config["models"]["mlp"]["optimizer"].update(lr=0.2))
    before = (project.folder / TABLE).read_text()
    project.call("--until", "train")
    for file in (project.results / "studies").rglob("*"):
        os.utime(file, (time.time() + 7200,) * 2)
    assert project.planned() == {"report_first": 1, "all": 1, "total": 2}
    project.call()
    assert (project.folder / TABLE).read_text() != before


@pytest.mark.parametrize("how", ["flip", "hide"])
@pytest.mark.parametrize("name", ["accuracy_table.csv", "made.json"])
def test_a_damaged_table_is_made_again(project, name, how):
    spoil(project.results / "studies" / "first" / name, how)
    planned = project.planned()
    assert (planned.get("train"), planned["report_first"]) == (None, 1)


def test_asking_for_more_trains_again_and_asking_for_less_does_not(project):
    for key in ("curves", "exclusive"):
        project.configure(studying(key, True))
        assert len(Decisions(project).runs) == 2
        project.configure(studying(key, False))
        assert Decisions(project).runs == set()
    project.configure(studying("curves", True))
    project.call("--until", "train")
    for file in (project.results / "runs").rglob("metrics.json"):
        metrics = read_json(file)
        assert metrics["epochs"][0]["accuracy"] is not None
        assert not metrics["conditions"]["exclusive"]
    for value in (True, False):
        project.configure(studying("curves", value))
        assert Decisions(project).runs == set()


def test_another_config_of_the_same_labels_has_results_of_its_own(project):
    """As the README has it: back and forth between two configs trains nothing twice."""
    other = Project(project.folder)
    other.config = project.folder / "config" / "other.yaml"
    other.config.write_text(project.config.read_text().replace("lr: 0.05", "lr: 0.1"))
    assert other.trains("report_first") == 2
    assert project.planned("report_first") == {}


def test_a_program_that_cannot_write_says_so_in_a_line(tmp_path):
    """As on a full disk."""
    project = copy(tmp_path)
    project.config.write_text(SWEEP)
    entry = "selections/tiny/mlp/constant/serial/w1t1/fold0of2/nall_seed0.json"
    files = {"assign_folds.py": "data/tiny/2folds_seed0_inner2.json", "train": entry}
    for program, file in files.items():
        obstacle = project.results / file
        obstacle.mkdir(parents=True)
        said = project.call(expect=1)
        assert program in said
        assert re.search(f"Is a directory: .* -> 'results/mine/{file}'", said)
        assert "Traceback" not in said
        obstacle.rmdir()
    project.call()
