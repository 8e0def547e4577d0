"""How long and how large a run is expected to be, where that was measured and where not."""

import json
import math
from pathlib import Path

import pytest
import yaml
from conftest import RUN, program, usual, vary

from allcores.files import read_json, write_json
from allcores_study.config import grid, settings, sweeps
from allcores_study.planning import preflight, trials
from allcores_study.planning.estimate import LIMITS, STACK_GAIN, Estimates, Expected
from allcores_study.records.identity import Record
from allcores_study.records.results_folder import ResultsFolder


def counted_by_trying(config, folder):
    """The table of a config whose models were smoke tested, as before a campaign."""
    table = grid.expand(config)
    config = settings.with_defaults(config)
    assert preflight.findings(config, table, [], folder.tried_out, program("check_models")) == []
    return table


def test_where_no_run_was_measured_a_step_of_its_model_is(tmp_path):
    counts = trials.tried_out(RUN, (3, 8, 8), usual(3))
    assert 0 < counts["seconds"] < 1
    assert counts["weight_bytes"] == 4 * (3 * 8 * 8 * 7 + 7 + 7 * 3 + 3)
    assert counts["activation_bytes"] >= 4 * (3 * 8 * 8 + 7)
    config = yaml.safe_load("""
models:
  lenet: &a {batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}
  longer: {<<: *a, name: lenet, epochs: 4}
  vgg11: *a
studies:
  all: {datasets: [cifar10], folds: test, models: [lenet, longer, vgg11]}
  few: {datasets: [cifar10], folds: test, models: [vgg11], train_sizes: [100]}
  two: {datasets: [cifar10], folds: test, models: [vgg11], strategies: [ddp], workers: [2]}
""")
    folder = ResultsFolder(str(tmp_path))
    table = counted_by_trying(config, folder)
    # Exact ones, in the place of those that were measured.
    timed = read_json(folder.tried_out)
    exact = {"lenet": 0.001, "longer": 0.001, "vgg11": 0.1}
    for run in table.runs.values():
        of_trial = timed[preflight.trial(run)[0]]["counts"]
        assert of_trial["seconds"] > 0
        of_trial["seconds"] = exact[run.model.label]
    write_json(folder.tried_out, timed)
    estimates = Estimates(table, folder, is_forked=False)
    runs = table.runs.values()
    seconds = {(r.model.label, r.train_size, r.workers): estimates.seconds(r) for r in runs}
    ordered = sorted(seconds, key=seconds.get)
    assert ordered.index(("lenet", None, 1)) < ordered.index(("longer", None, 1))
    assert seconds["lenet", None, 1] == pytest.approx(2 * 50_000 * 0.001, abs=10)
    assert ordered[-2:] == [("vgg11", None, 2), ("vgg11", None, 1)]
    assert all(60 * estimates.minutes([run]) > 2.9 * estimates.seconds(run) for run in runs)
    memory_mb = {(r.train_size, r.workers): estimates.memory_mb(r) for r in table.of("two")}
    assert memory_mb[None, 2] > estimates.memory_mb(table.of("few")[0])


def test_small_networks_that_are_stacked_take_a_part_of_the_time(tmp_path):
    config = yaml.safe_load("""
models:
  mlp: {hidden: [4], batch_size: 8, epochs: 90, optimizer: {name: adam, lr: 0.1}}
studies:
  many: {datasets: [digits], folds: 3, models: [mlp]}
  timed: {datasets: [digits], folds: 5, models: [mlp], strategies: [serial, ddp], workers: [2]}
""")
    folder = ResultsFolder(str(tmp_path))
    table = counted_by_trying(config, folder)
    timed = read_json(folder.tried_out)
    for answer in timed.values():  # exact, in the place of what was measured
        answer["counts"]["seconds"] = 1e-5
    write_json(folder.tried_out, timed)
    estimates = Estimates(table, folder, is_forked=True)
    (stacked, *_), (alone, *_) = table.of("many"), table.of("timed")
    assert stacked.stacked is None and alone.stacked is False
    assert estimates.seconds(alone) / estimates.seconds(stacked) > STACK_GAIN / 2


def test_a_limit_is_as_generous_as_the_least_known_run_needs(monkeypatch):
    known, unknown = RUN, vary(RUN, seed=1)
    monkeypatch.setattr(
        Estimates, "expected", lambda self, run: Expected(600.0, 1e6, is_measured=run is known)
    )
    estimates = object.__new__(Estimates)
    assert estimates.minutes([known, known]) == math.ceil(20 * LIMITS[True][0])
    assert estimates.minutes([known, unknown]) == math.ceil(20 * LIMITS[False][0])


def test_more_processes_than_cores_are_not_faster(tmp_path):
    config = yaml.safe_load("""
models: {mlp: {hidden: [4], batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}}
studies: {all: {datasets: [digits], folds: 2, models: [mlp], strategies: [ring], workers: [2, 4]}}
""")
    table, folder = grid.expand(settings.with_defaults(config)), ResultsFolder(str(tmp_path))
    two, four = (run for run in table.runs.values() if run.fold == 0)
    on_two, anywhere = (Estimates(table, folder, True, cores) for cores in (2, None))
    assert on_two.seconds(four) == on_two.seconds(two) == anywhere.seconds(two)
    assert anywhere.seconds(four) < anywhere.seconds(two)


def test_a_finished_run_says_how_long_its_kind_takes(tmp_path):
    config = yaml.safe_load("""
models: {mlp: {hidden: [4], batch_size: 8, epochs: 2, optimizer: {name: adam, lr: [0.1, 0.2]}}}
studies: {all: {datasets: [digits], folds: 2, models: [mlp]}}
""")
    table, folder = grid.expand(sweeps.expanded(config)), ResultsFolder(str(tmp_path))
    (first, second), (other, *_) = (
        [run for run in table.runs.values() if run.model.label == f"mlp-lr{lr}"]
        for lr in (0.1, 0.2)
    )
    sessions = [{"started": 100.0, "ended": 130.0}, {"started": 200.0, "ended": 207.0}]
    content = {"sessions": sessions, "peak_memory_bytes": 3e9, "diverged": False}
    content["settings"] = json.loads(first.to_json())
    Path(folder.run(first.path)).mkdir(parents=True)
    Record("any", content=content).write(folder.metrics(first.path))
    estimates = Estimates(table, folder, is_forked=True)
    assert estimates.seconds(first) == estimates.seconds(second) == 37
    assert estimates.memory_mb(second) == 3750
    assert not estimates.expected(other).is_measured
    assert estimates.work(first) == 37, "it has shared a job, so its time has no start in it"


def test_runs_of_one_label_that_differ_in_length_are_estimated_each(tmp_path):
    config = yaml.safe_load("""
models: {mlp: {hidden: [4], batch_size: 8, epochs: [2, 200], optimizer: {name: adam, lr: 0.1}}}
studies: {all: {datasets: [digits], folds: 2, models: [mlp], select: 2}}
""")
    table = grid.expand(sweeps.expanded(settings.with_defaults(config)))
    estimates = Estimates(table, ResultsFolder(str(tmp_path)), is_forked=True)
    (path, *_) = table.selections
    assert estimates.run_at(path).epochs == 200
    short, long = table.selections[path].outer.values()
    assert estimates.work(long) > 20 * estimates.work(short)


def test_later_folds_in_time_are_larger(tmp_path):
    rows = "".join(f"{n},{n},{n % 2}\n" for n in range(6000))
    (tmp_path / "it.csv").write_text(f"x,t,y\n{rows}")
    config = yaml.safe_load(f"""
datasets: {{it: {{name: table, path: {tmp_path}/it.csv, target: y, time: t}}}}
models: {{mlp: {{hidden: [4], batch_size: 8, epochs: 9, optimizer: {{name: adam, lr: 0.1}}}}}}
studies: {{all: {{datasets: [it], folds: 5, models: [mlp]}}}}
""")
    table, folder = grid.expand(settings.with_defaults(config)), ResultsFolder(str(tmp_path))
    runs = sorted(table.runs.values(), key=lambda run: run.fold)
    first, *_, last = map(Estimates(table, folder, is_forked=True).work, runs)
    assert last > 4 * first
    content = {"sessions": [{"started": 0.0, "ended": 9.0}], "peak_memory_bytes": 1e9}
    content |= {"settings": json.loads(runs[0].to_json()), "diverged": False}
    Path(folder.run(runs[0].path)).mkdir(parents=True)
    Record("any", content=content).write(folder.metrics(runs[0].path))
    estimates = Estimates(table, folder, is_forked=True)
    assert [estimates.expected(run).is_measured for run in runs] == [True] + [False] * 4
