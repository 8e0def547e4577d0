"""From a config to the table of runs."""

import json

import pytest
import yaml

from allcores_study.analysis.study import Study
from allcores_study.config import grid, registry, settings, sweeps
from allcores_study.config.run import Run
from allcores_study.records import results_folder

CONFIG = yaml.safe_load("""
models:
  lenet: {batch_size: 8, epochs: 1, optimizer: {name: adam, lr: 0.1}}
  small: {name: lenet, width: 0.5, batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 0.1}}
strategies:
  big_buckets: {name: ddp, bucket_mb: 100}
studies:
  one: {datasets: [digits], folds: 3, models: [lenet], strategies: [serial, ddp], workers: [1, 2]}
  two:
    datasets: [digits]
    folds: 3
    models: [lenet, small]
    strategies: [serial, big_buckets]
    workers: [2]
    seeds: [0, 1]
    curves: true
    exclusive: true
  three: {datasets: [mnist], folds: test, models: [lenet], train_sizes: [100, all]}
""")


def test_runs_that_are_timed_by_their_number_of_samples_are_not_stacked():
    """The members of a stack share one time, whatever they are trained on."""
    study = {"datasets": ["digits"], "folds": 3, "models": ["small"]}
    for sizes, stacked in ((["all"], None), ([50, "all"], False)):
        studies = {"s": study | {"train_sizes": sizes}}
        runs = grid.expand(CONFIG | {"studies": studies}).runs.values()
        assert {run.stacked for run in runs} == {stacked}


def test_cores_are_workers_and_servers_or_threads():
    names = ["serial", "ddp", "parameter_server", "accelerator"]
    asked = {"strategies": names, "cores": [2, 3]}
    ways = grid.layouts({}, asked)
    assert [(strategy.label, *others) for strategy, *others in ways] == [
        ("serial", 1, 1, 0, 2),
        ("serial", 1, 1, 0, 3),
        ("ddp", 1, 2, 0, 1),
        ("ddp", 1, 3, 0, 1),
        ("parameter_server", 1, 1, 1, 1),
        ("parameter_server", 1, 2, 1, 1),
        ("accelerator", 1, 1, 0, 1),
    ]


def test_repeats_of_an_exclusive_cell_lie_far_apart():
    table = grid.expand(CONFIG)
    turns = table.turns()
    assert set(turns) == set(table.exclusive)
    assert sorted(turns.values()) == list(range(24))
    in_order = [table.runs[path] for path in sorted(turns, key=turns.get)]
    repeats = [(run.seed, run.fold) for run in in_order]
    assert repeats == sorted(repeats)
    assert len({run.path.partition("/w")[0] for run in in_order[:4]}) == 4


def test_a_study_is_a_grid_and_equal_runs_of_two_are_trained_once():
    table = grid.expand(CONFIG)
    # serial ignores workers; ddp comes with 1 and 2.
    sizes = {"one": 3 * (1 + 2), "two": 3 * 2 * 2 * 2, "three": 2}
    assert {name: len(paths) for name, paths in table.studies.items()} == sizes
    shared = set(table.studies["one"]) & set(table.studies["two"])
    assert len(shared) == 3, "serial LeNet with seed 0, three folds"
    assert len(table.runs) == sum(sizes.values()) - 3
    assert all(table.conditions[path].curves for path in shared), (
        "what either study wants is recorded"
    )
    assert set(table.exclusive) == set(table.studies["two"])


def test_paths_tell_runs_apart():
    runs = grid.expand(CONFIG).runs
    assert len({run.to_json() for run in runs.values()}) == len(runs)
    assert "digits/small/constant/big_buckets/w2t1/fold2of3/nall_seed1" in runs
    assert "mnist/lenet/constant/serial/w1t1/test/n100_seed0" in runs
    run = runs["digits/small/constant/big_buckets/w2t1/fold2of3/nall_seed1"]
    assert run.model.name == "lenet"
    assert run.model.options == {"width": 0.5}
    assert run.strategy.options == {"bucket_mb": 100}
    assert run.cores == 2


def test_settings_are_canonical():
    run = next(iter(grid.expand(CONFIG).runs.values()))
    assert Run.from_json(run.to_json()) == run
    reordered = json.dumps(json.loads(run.to_json()), indent=2)
    assert Run.from_json(reordered).to_json() == run.to_json()


def test_a_config_gives_its_results_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def name(*files):
        return results_folder.name_of(files)

    assert name(registry.CONFIG) == "default"
    assert name("/project/config/miniature/kfold.yaml") == "miniature/kfold"
    assert name("config/mine.yaml") == name("mine.yml") == name("/project/mine.yaml") == "mine"
    assert name("mine.yaml", "more.yaml") == "mine+more"
    assert name("/a/mine.yaml") == name("/b/config/mine.yaml") == "mine"
    refused = ["config/default.yaml", "by_hand.yaml", "my grid.yaml", "a{b}.yaml", "...yaml"]
    for file in [*refused, "config/downloads/x.yaml", "config/mine/runs.yaml"]:
        with pytest.raises(ValueError, match="expected a file name that begins with a letter"):
            name(file)


def test_two_configs_of_one_name_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = results_folder.ResultsFolder("results/mine")
    assert folder.config({"timeout": 1}) != folder.config({"timeout": 2})
    assert results_folder.foreign(["mine.yaml"], "results/mine") == []
    results_folder.note_origin(["mine.yaml"], "results/mine")
    assert results_folder.foreign(["mine.yaml"], "results/mine") == []
    assert results_folder.foreign([str(tmp_path / "mine.yaml")], "results/mine") == []
    (said,) = results_folder.foreign(["config/mine.yaml"], "results/mine")
    assert "holds the results of 'mine.yaml', not of 'config/mine.yaml'" in said


def test_the_config_in_a_report_trains_the_same_again():
    config = settings.with_defaults(
        yaml.safe_load("""
precision: fp32
memory_format: contiguous
models:
  mlp: {hidden: [[8], [16]], batch_size: [8, 16], sample: 3, epochs: 1, optimizer: {name: sgd}}
  other: {name: lenet, batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 0.1}}
schedules: {slow: {name: cosine}, unused: {name: constant}}
datasets: {small: {name: digits}}
studies:
  chosen:
    datasets: [small]
    folds: 3
    select: 2
    models: [mlp]
    schedules: [slow]
    strategies: [ddp]
    workers: [2]
    against: alone
  alone: {datasets: [small], folds: 3, models: [other], exclusive: true}
""")
    )
    expanded = sweeps.expanded(config)
    folder = results_folder.ResultsFolder("results/mine")
    table = grid.expand(expanded)
    part = Study(expanded, table, folder, "chosen").config_part
    assert set(part) == {"datasets", "models", "schedules", "studies", "memory_format"}
    assert set(part["schedules"]) == {"slow"}
    page = yaml.safe_dump(part, sort_keys=False)
    again = grid.expand(sweeps.expanded(settings.with_defaults(yaml.safe_load(page))))
    assert set(again.studies) == {"chosen", "alone"}
    assert again.runs == table.runs
    assert again.studies == table.studies
    assert Study(expanded, table, folder, "alone").config_part == {
        "datasets": {"small": {"name": "digits"}},
        "models": {"other": config["models"]["other"]},
        "studies": {"alone": settings.without_defaults(config["studies"]["alone"])},
        "memory_format": "contiguous",
    }
