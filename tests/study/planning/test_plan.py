"""What is predicted before anything is trained."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import patience
import psutil
import pytest
import yaml
from conftest import ENVIRONMENT, MOBILENET, OF_PROGRAMS, ROOT, RUN, vary, warm
from patience import wait_for
from project import MINIATURE, RUNS, copy
from test_strategies import alive

from allcores.machine import costs, lifetime
from allcores_study.config import grid, sweeps
from allcores_study.config.run import AUTO
from allcores_study.planning import choose, measuring, packing, plan, summary
from allcores_study.planning.prediction import Measurement, Prediction
from allcores_study.planning.workload import Sizes, Workload
from allcores_study.records.identity import Record
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.tasks.base import usual
from allcores_study.training import recipes

SIZES = Sizes((3, 8, 8), usual(3), 100, 20)
MEASUREMENT = Measurement(
    step_seconds=0.1,
    slower=1.5,
    warm_up_seconds=1.0,
    fixed_seconds=2.0,
    epoch_seconds=0.5,
    evaluation_seconds=0.25,
    image_seconds=0.01,
    memory_bytes=1_000_000,
    weights_bytes=1000,
    end_seconds=0.0,
)


def job(cores, seconds, memory=1, after=0.0):
    return packing.QueuedRun(cores, memory, seconds, after)


def test_a_prediction_adds_up():
    predicted = MEASUREMENT.prediction(vary(batch_size=10, epochs=4), SIZES)
    assert predicted.training == pytest.approx(4 * 10 * 0.1 + 1.0)
    assert predicted.other == pytest.approx(2.0 + 4 * 0.5 + 0.25 + 20 * 0.01)
    assert predicted.seconds_among(0.5) == pytest.approx(5.0 * 1.25 + predicted.other)
    assert predicted.memory == 1_000_000 + 120 * 3 * 8 * 8
    curves = MEASUREMENT.prediction(vary(batch_size=10, epochs=4), SIZES, curves=True)
    assert curves.other - predicted.other == pytest.approx(3 * (0.25 + 20 * 0.01))


@pytest.mark.parametrize(
    ("jobs", "on", "makespan"),
    [
        ([], 2, 0),
        ([job(1, 10)], 2, 10),
        ([job(1, 10)] * 3, 2, 20),
        ([job(2, 10), job(1, 10), job(1, 10)], 2, 20),
        # The wide one has to wait, a later one fills in.
        ([job(1, 10), job(2, 5), job(1, 4)], 2, 15),
        ([job(4, 10)], 2, 10),
        # Cores that are free at the same time are free for a wide one.
        ([job(1, 10)] * 3 + [job(2, 10), job(1, 5), job(1, 5)], 3, 20),
    ],
)
def test_runs_are_packed_as_snakemake_does(jobs, on, makespan):
    assert packing.pack(jobs, on)[0] == pytest.approx(makespan)


def test_runs_are_packed_by_memory_too():
    jobs = [job(1, 10, memory=60)] * 3
    assert packing.pack(jobs, 4, memory=130) == pytest.approx((20, 120))
    # One gets all; what it claims is told.
    assert packing.pack(jobs, 4, memory=50) == pytest.approx((30, 60))
    jobs = [job(1, 10, after=1.0)] * 3
    assert packing.pack(jobs, 4)[0] == pytest.approx(10)
    assert packing.pack(jobs, 1)[0] == pytest.approx(32)


def test_neighbours_slow_a_run_down():
    """By half, if all other cores are busy; a run that has the machine to itself by nothing."""
    predicted = Prediction(10.0, 2.0, 0.0, 1.5, 1)
    for runs, cores, exclusive, seconds in [
        (1, 2, False, 12),
        (2, 2, False, 17),
        (3, 2, False, 17),
        (2, 3, False, 14.5),
        (2, 1, False, 12),
        (2, 2, True, 12),
    ]:
        one = plan.Planned("", RUN, exclusive, 1, 0, predicted)
        busy = plan.packed_cores([one] * runs)
        assert one.seconds(busy, cores) == pytest.approx(seconds), (runs, cores, exclusive)


def test_measurements_are_kept(tmp_path):
    workload, contended = Workload.of(RUN, SIZES), dataclasses.replace(MEASUREMENT, contended=True)
    assert contended.prediction(RUN, SIZES).contended
    plan.Measurements(tmp_path / "measurements.json").keep(workload, contended)
    assert plan.Measurements(tmp_path / "measurements.json").of(workload) == contended
    (tmp_path / "measurements.json").write_text('{"a": {"odd": 1}}')
    assert plan.Measurements(tmp_path / "measurements.json").of(workload) is None


def test_a_workload_is_what_decides_the_speed():
    workload = Workload.of(RUN, SIZES)
    assert workload.key == Workload.of(vary(seed=1, epochs=9, folds=5, fold=2), SIZES).key
    assert workload.key == Workload.of(vary(epochs=9, stop_after=3), SIZES).key
    assert workload.key != Workload.of(vary(batch_size=11), SIZES).key
    assert workload.key != Workload.of(vary(model=MOBILENET), SIZES).key
    sgd = RUN.optimizer.options
    for options, is_same in [
        ({"lr": 0.3, "momentum": 0.5}, True),
        ({"lr": 0.1, "momentum": 0.0}, False),
        ({"lr": 0.1, "momentum": 0.9, "nesterov": True}, False),
    ]:
        optimizer = dataclasses.replace(RUN.optimizer, options=sgd | options)
        other = Workload.of(vary(optimizer=optimizer), SIZES)
        of_reference = dataclasses.replace(RUN.optimizer, options=sgd | {"momentum": 0.9})
        reference = Workload.of(vary(optimizer=of_reference), SIZES)
        assert (other.key == reference.key) is is_same, options


def test_the_start_of_a_measured_run_is_its_own(monkeypatch):
    """Also where a warm process plans, for a program that was called long ago."""
    monkeypatch.setenv(lifetime.CLIENT, str(os.getppid()))
    age = time.time() - costs.program_start("self")
    began = time.monotonic()
    measured = measuring.measure(Workload.of(RUN, SIZES), SIZES, 1)
    assert measured.fixed_seconds < time.monotonic() - began < age


def work_of(run):
    """Seconds of a step by a law: 1 ms per sample and 10 ms per exchange, which grows."""
    compute_ms = -(-run.batch_size // run.workers) / run.threads_per_worker**0.5
    exchange = 0.01 * 2 * (run.workers - 1) / run.workers if run.workers > 1 else 0.0
    changes = {"step_seconds": compute_ms / 1000 + exchange, "weights_bytes": 1 << 40}
    return dataclasses.replace(MEASUREMENT, **changes, slower=1.0)


class ByLaw:
    """A planner that measures nothing: every run takes as long as work_of() says."""

    memory = float("inf")

    def measure(self, table):
        pass

    def of(self, table):
        return [
            plan.Planned(path, run, False, 100, 0, work_of(run).prediction(run, SIZES))
            for path, run in table.runs.items()
        ]


def test_a_plan_that_is_ended_keeps_what_it_has_measured(tmp_path, monkeypatch):
    folder, workloads = ResultsFolder(str(tmp_path)), []

    def measure(workload, sizes, copies):
        workloads.append(workload)
        if len(workloads) == 2:
            raise KeyboardInterrupt
        return MEASUREMENT

    monkeypatch.setattr(measuring, "measure", measure)
    table = grid.expand(
        yaml.safe_load(MINIATURE) | {"precision": "fp32", "memory_format": "contiguous"}
    )
    with pytest.raises(KeyboardInterrupt):
        plan.Planner(folder, 2, say=str).of(table)
    again = plan.Planner(folder, 2, say=str)
    assert again.measurements.of(workloads[0]) == MEASUREMENT
    assert again.measurements.of(workloads[1]) is None


def test_candidates_share_a_recipe_and_those_of_one_size_a_measurement(tmp_path, monkeypatch):
    """Else a plan of a search takes longer than the search."""
    measured, calibrated = [], []

    def calibrate(run, sizes, available, file):
        calibrated.append(run)
        timing = run.plain.recipe | {"images_per_second": 1.0}
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Record(recipes.cache_key(run), content={"cores": 1, "timings": [timing]}).write(file)

    def measure(workload, sizes, copies):
        measured.append(workload)
        return MEASUREMENT

    monkeypatch.setattr(measuring, "calibrate", calibrate)
    monkeypatch.setattr(measuring, "measure", measure)
    config = yaml.safe_load(MINIATURE)
    config["models"]["mlp"] |= {"hidden": [[8], [16]]}
    config["models"]["mlp"]["optimizer"] |= {"lr": [0.1, 0.2], "momentum": [0.5, 0.9]}
    config["studies"]["first"] |= {"models": ["mlp"], "strategies": ["serial"], "workers": [1]}
    config |= {"precision": AUTO, "memory_format": AUTO}
    table = grid.expand(sweeps.expanded(config))
    planned = plan.Planner(ResultsFolder(str(tmp_path)), 2, say=str).of(table)
    assert len({item.run.model.label for item in planned}) == 8
    assert [len(calibrated), len(measured)] == [1, 2]
    setups = summary.of_setups(planned, table, 2)
    assert list(setups["model"]) == ["mlp"] and list(setups["runs"]) == [len(planned)]


@pytest.mark.parametrize(
    ("folds", "cores", "expected"), [(10, 48, {4}), (200, 48, {1}), (3, 2, {1, 2}), (2, 1, {1})]
)
def test_how_many_runs_there_are_decides_how_wide_they_are(tmp_path, folds, cores, expected):
    config = yaml.safe_load(MINIATURE)
    config["models"]["mlp"].update(batch_size=1024, epochs=50)
    study = {"datasets": ["tiny"], "folds": folds, "models": ["mlp"], "strategies": ["auto"]}
    config["studies"] = {"one": study}
    file = tmp_path / "chosen.json"
    chosen_config = choose.choose(config, ByLaw(), cores, file)
    runs = grid.expand(chosen_config).of("one")
    assert len(runs) == folds
    assert {run.cores for run in runs} <= expected
    assert {run.strategy.label for run in runs} <= {"serial", "ddp", "ring", "shared_memory"}
    # It is kept, as long as it fits.
    assert choose.with_saved(config, file, cores) == chosen_config
    assert choose.with_saved(config, file, None) == chosen_config
    assert choose.with_saved(config, file, cores + 1) == chosen_config
    if cores > 1:
        assert choose.with_saved(config, file, cores - 1) is None
    study["folds"] = folds + 1
    assert choose.with_saved(config, file, cores) is None


def call(project, *arguments, expect=0):
    command = [*warm(OF_PROGRAMS, ROOT / "scripts" / "plan.py"), *map(str, arguments)]
    command += ["--configfile", str(project.config)]
    run = subprocess.run(
        command, cwd=project.folder, env=ENVIRONMENT, text=True, capture_output=True
    )
    assert run.returncode == expect, run.stdout + run.stderr
    return run.stdout, run.stderr


def test_a_plan_is_made_once(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    project.configure(lambda config: config.update(precision="auto", memory_format="auto"))
    said, progress = call(project, "--cores", 2)
    assert "measuring the fastest recipe for mlp" in progress
    assert "measuring 1 of 2: mlp serial w1t1" in progress
    assert f"first: {RUNS // 2} runs" in said
    assert "2 workers, 2 cores" in said
    assert "Not estimated" not in said
    setups = pd.read_csv(project.results / "plan" / "plan.csv")
    assert setups["runs"].sum() == RUNS / 2
    assert (setups["seconds"] > 0).all() and (setups["memory_mb"] > 10).all()
    assert not list(tmp_path.rglob("metrics.json"))
    again, progress = call(project, "--cores", 2)
    assert (again, progress) == (said, "")

    # With more cores than this machine has.
    project.configure(lambda config: config["studies"]["first"].update(workers=[1, 300]))
    project.configure(lambda config: config["models"]["mlp"].update(batch_size=300))
    said, _ = call(project, "--cores", 300)
    assert "Not estimated: 2 of 6 runs take more cores than" in said
    assert "This machine has" in said
    setups = pd.read_csv(project.results / "plan" / "plan.csv")
    assert set(setups["workers"]) == {1}
    wide = {"workers": [300], "strategies": ["ddp"]}
    project.configure(lambda config: config["studies"]["first"].update(wide))
    _, said = call(project, "--cores", 300, expect=1)
    assert "plan.py: Not estimated" in said


def test_what_cannot_be_planned_is_said(tmp_path):
    project = copy(tmp_path)
    project.edit("mine.yaml", "hidden: [16]", "hidden: [16], batch_sizes: 3")
    _, said = call(project, expect=1)
    assert "mine.yaml:4: models.mlp.batch_sizes: unknown key" in said
    project.edit("mine.yaml", ", batch_sizes: 3", "")
    project.edit("mine.yaml", "lr: 0.05", "lr: 0.05, momentum: [-1, 0.9]")
    _, said = call(project, "--cores", 2, expect=1)
    assert "mine.yaml:4: models.mlp.optimizer: Invalid momentum value: -1" in said
    assert "Traceback" not in said


def sessions(project):
    for file in (project.results / "runs").rglob("metrics.json"):
        for session in json.loads(file.read_text())["sessions"]:
            yield session["started"], session["ended"]


def test_auto_trains_what_was_chosen_and_runs_have_room_in_memory(tmp_path):
    project = copy(tmp_path)
    project.configure(auto)
    # Each of them claims all of it.
    output = project.call("--resources", "mem_mb=1")
    assert "first: auto chose" in output
    chosen = json.loads((project.results / "plan" / "chosen.json").read_text())
    setup = chosen["first"]["ways"]["tiny"]["mlp"]
    setup_path = f"{setup['strategy']}/w{setup['workers']}t{setup['threads']}"
    metrics = list(
        (project.results / "runs" / "tiny" / "mlp" / "cosine").glob(f"{setup_path}/*/*/*.json")
    )
    assert len({file.parent for file in metrics}) == 2
    one, other = sorted(sessions(project))
    assert one[1] <= other[0]
    assert project.planned() == {}
    assert project.planned(cores="1").get("train", 0) == (2 if setup["workers"] > 1 else 0)


PREFIX = "allcores-plan-"


def auto(config):
    change = {"strategies": ["auto"], "models": ["mlp"]}
    config["studies"]["first"].update(change)
    del config["studies"]["first"]["workers"]


def test_reading_a_workflow_starts_nothing(tmp_path):
    """Also where something is to be chosen first: a dry run shows the runs as if it was serial."""
    project = copy(tmp_path)
    project.configure(auto)
    planned = project.planned()
    assert planned["train"] == 2
    assert planned["report_first"] == 1 and "choose" not in planned
    said = project.call("-n")
    assert "NOTE: `auto` is decided when training begins" in said
    project.call("--lint")
    project.call("--unlock")
    assert not (tmp_path / "results").exists()
    # Also of one report, as of all.
    assert "NOTE: `auto` is decided when" in project.call("-n", "report_first")
    # Preparing data needs no choice, and a choice may need the data.
    assert "Choosing" not in project.call("--until", "prepare_dataset")
    assert not (project.results / "plan").exists()


def test_what_cannot_be_chosen_is_said(tmp_path):
    project = copy(tmp_path)
    project.configure(auto)
    project.configure(lambda config: config["models"]["mlp"]["optimizer"].update(momentum=-1.0))
    said = project.call(expect=1)
    assert "models.mlp.optimizer: Invalid momentum value: -1" in said
    assert "Choosing a strategy" not in said


@pytest.mark.parametrize(
    ("called", "number"),
    [
        ("by hand", signal.SIGKILL),
        ("by hand", signal.SIGTERM),
        ("by hand", signal.SIGINT),
        ("for auto", signal.SIGKILL),
    ],
)
def test_a_plan_that_is_ended_leaves_nothing(tmp_path, monkeypatch, called, number):
    """Nor does it go on; by hand it says nothing of its own code."""
    project, temporary = copy(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(temporary))
    project.configure(auto)
    if called == "for auto":
        process = project.snakemake(start_new_session=True)
    else:
        command = [sys.executable, ROOT / "scripts" / "plan.py", "--configfile", project.config]
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=tmp_path,
            env=ENVIRONMENT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    wait_for(lambda: list(temporary.glob(f"{PREFIX}*/*")))
    begun = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    said, _ = process.communicate(timeout=patience.seconds(60))
    wait_for(lambda: not any(alive(child.pid) for child in begun), 10)
    if (called, number) == ("by hand", signal.SIGKILL):
        # Nobody is left to remove the folder: the next plan does.
        assert call(project, "--cores", 2)
    else:
        assert "Traceback" not in said
    wait_for(lambda: not list(temporary.glob(f"{PREFIX}*")), 5)
