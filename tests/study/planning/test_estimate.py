"""How long and how large a run is expected to be, where that was measured and where not."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from conftest import ROOT, RUN
from project import MINIATURE
from test_tokens import run_on

from allcores.files import read_json, write_json
from allcores_study.config import grid, schema, sweeps
from allcores_study.planning import measuring, plan, preflight, trials
from allcores_study.planning.estimate import Estimates, Expected
from allcores_study.planning.workload import Sizes
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.tasks.base import usual


def counted_by_trying(config, folder):
    """The table of a config whose models were smoke tested, as before a campaign."""
    table = grid.expand(config)
    program = [sys.executable, ROOT / "scripts" / "check_models.py"]
    config = schema.defaults() | config
    assert preflight.findings(config, table, [], folder.tried_out, program) == []
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
    estimates = Estimates(table, folder, 2, forked=False)
    runs = table.runs.values()
    seconds = {(r.model.label, r.train_size, r.workers): estimates.seconds(r) for r in runs}
    ordered = sorted(seconds, key=seconds.get)
    assert ordered.index(("lenet", None, 1)) < ordered.index(("longer", None, 1))
    assert seconds["lenet", None, 1] == pytest.approx(2 * 50_000 * 0.001, abs=5)
    assert ordered[-2:] == [("vgg11", None, 2), ("vgg11", None, 1)]
    assert all(60 * estimates.minutes([run]) > 2.9 * estimates.seconds(run) for run in runs)
    memory_mb = {(r.train_size, r.workers): estimates.memory_mb(r) for r in table.of("two")}
    assert memory_mb[None, 2] > estimates.memory_mb(table.of("few")[0])


def test_what_is_for_two_machines_is_not_measured_on_one(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "measure", lambda *_: pytest.fail("it was measured"))
    config = yaml.safe_load(MINIATURE) | {"precision": "fp32", "memory_format": "contiguous"}
    study = {"datasets": ["tiny"], "folds": 2, "models": ["mlp"], "strategies": ["ddp"]}
    study |= {"nodes": 2, "workers": [1], "exclusive": True, "oversubscribe": True}
    config["studies"] = {"wide": study}
    planner, table = plan.Planner(ResultsFolder(str(tmp_path)), 2, say=str), grid.expand(config)
    assert planner.too_wide(table) == list(table.runs)
    assert planner.of(table) == []


@pytest.mark.parametrize("uncounted", [0, 1])
def test_a_candidate_whose_step_could_not_be_counted_is_taken_for_the_largest(tmp_path, uncounted):
    config = yaml.safe_load("""
models:
  mlp: {hidden: [4], width: [1, 2], batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}
studies:
  all: {datasets: [digits], folds: test, models: [mlp]}
""")
    folder = ResultsFolder(str(tmp_path))
    table = counted_by_trying(sweeps.expanded(config), folder)
    timed = read_json(folder.tried_out)
    runs = list(table.runs.values())
    answers = [timed[preflight.trial(run)[0]] for run in runs]
    answers[1 - uncounted]["counts"]["seconds"] = 0.1
    answers[uncounted]["counts"] = {}
    write_json(folder.tried_out, timed)
    estimates = Estimates(table, folder, 2, forked=False)
    assert len({estimates.seconds(run) for run in runs}) == 1


def test_an_estimate_is_made_while_a_search_adds_runs(tmp_path, monkeypatch):
    """In the thread of the progress line; each look at a run adds another one here."""
    table = grid.Table({}, {}, {})

    class Growing:
        @property
        def model(self):
            table.runs[f"run{len(table.runs)}"] = self
            return SimpleNamespace(label="m")

    estimates = Estimates(table, ResultsFolder(str(tmp_path)), 2, forked=True)
    table.runs["first"] = Growing()
    monkeypatch.setattr(preflight, "trial", lambda run: None)
    assert estimates.largest("m") == {}


def test_the_size_of_damaged_tokens_is_that_of_the_file_that_they_are_from(tmp_path, laboratory):
    """The data are rebuilt; before that, a call asks how large its runs are."""
    run = run_on(tmp_path)
    folder = laboratory.data(run.dataset)
    sizes, inputs = Sizes.of(run, folder), np.load(folder / "inputs.npy")
    inputs[3, 0] = 1 << 25
    np.save(folder / "inputs.npy", inputs)
    assert vars(Sizes.of(run, folder)).keys() == vars(sizes).keys()
    assert Sizes.of(run, folder).train == sizes.train


def test_how_far_off_estimates_are_is_found_once(tmp_path, monkeypatch):
    """Not for each kind of run again: a search of 100 candidates waited 18 s for it."""
    config = yaml.safe_load(MINIATURE)
    config["models"]["mlp"]["optimizer"]["lr"] = [place / 100 for place in range(1, 31)]
    config["studies"]["first"] |= {"models": ["mlp"], "strategies": ["serial"], "workers": [1]}
    table = grid.expand(sweeps.expanded(config))
    estimates = Estimates(table, ResultsFolder(str(tmp_path)), 2, forked=True)
    kinds, counted = list(estimates.paths_of_kind), []
    finished = dict.fromkeys(kinds[::2], Expected(30.0, 1.0, measured=True))
    of_counts = estimates._from_counts
    monkeypatch.setattr(estimates, "from_run", finished.get)
    monkeypatch.setattr(
        estimates, "_from_counts", lambda run: counted.append(run) or of_counts(run)
    )
    seconds = {
        kind: estimates.seconds(table.runs[estimates.paths_of_kind[kind][0]]) for kind in kinds
    }
    assert len(kinds) == 30 and len(counted) == 30
    # What has not finished is corrected by what has.
    assert seconds[kinds[1]] == pytest.approx(30.0) and seconds[kinds[0]] == 30.0
