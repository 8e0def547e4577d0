"""What a config leaves open is measured and filled in."""

import dataclasses
import json
import time

import pytest
import torch
from conftest import LENET, vary
from project import copy

from allcores.parallel import failures
from allcores_study.config import checks, grid, sweeps
from allcores_study.config.run import AUTO
from allcores_study.records.identity import Record
from allcores_study.training import models, recipes

OPEN = vary(precision=AUTO, memory_format=AUTO, threads_per_worker=AUTO)


def answered(file, speeds):
    """A file that says {(threads, precision, memory format): samples per second}."""
    keys = ("threads_per_worker", "precision", "memory_format")
    timings = [
        dict(zip(keys, recipe, strict=True)) | {"images_per_second": speed}
        for recipe, speed in speeds.items()
    ]
    Record("", content={"timings": timings}).write(file)
    return file


SPEEDS = {
    (1, "fp32", "contiguous"): 100,
    (1, "fp32", "channels_last"): 130,
    (1, "bf16", "contiguous"): 90,
    (1, "bf16", "channels_last"): 132,
    (2, "fp32", "contiguous"): 150,
    (2, "fp32", "channels_last"): 160,
    (2, "bf16", "contiguous"): 140,
    (2, "bf16", "channels_last"): 200,
}


@pytest.mark.parametrize(
    ("cores", "workers", "servers", "expected"),
    [
        (2, 1, 0, ("bf16", "channels_last", 2)),
        (2, 2, 0, ("fp32", "channels_last", 1)),  # bf16 is faster by less than measurements vary
        (4, 2, 1, ("fp32", "channels_last", 1)),  # 3 processes leave one core each
        (1, 2, 0, ("fp32", "channels_last", 1)),
        (4, 2, 0, ("bf16", "channels_last", 2)),
    ],
)
def test_the_fastest_that_fits_is_taken(tmp_path, cores, workers, servers, expected):
    run = vary(OPEN, workers=workers, servers=servers)
    filled = recipes.fill_in(run, answered(tmp_path / "recipe", SPEEDS), cores)
    assert tuple(filled.recipe.values()) == expected
    assert not filled.has_auto
    assert vary(filled, **OPEN.recipe) == run


def test_ways_of_using_the_cores_share_a_recipe_unless_threads_are_asked_for(tmp_path):
    """Else a comparison of these ways would also be one of recipes."""
    open_format = vary(precision="fp32", memory_format=AUTO)
    runs = [vary(open_format, workers=w, threads_per_worker=t) for w, t in ((1, 1), (4, 1), (1, 3))]
    assert len({recipes.cache_key(run) for run in runs}) == 1
    assert {run.recipe_group for run in runs} == {"all"}
    file = answered(tmp_path / "recipe", {(1, "fp32", "channels_last"): 1})
    assert [recipes.fill_in(run, file, 4).threads_per_worker for run in runs] == [1, 1, 3]
    assert vary(OPEN, workers=3).recipe_group == "w3"


def test_each_processor_of_a_cluster_has_a_file_of_its_own(tmp_path, monkeypatch):
    file = tmp_path / "lenet_all.json"
    Record(recipes.cache_key(OPEN)).write(file)
    assert recipes.for_this_processor(file) == file
    monkeypatch.setattr(recipes.cores, "processor", lambda: "another one")
    other = recipes.for_this_processor(file)
    assert other != file
    assert other.parent == file.parent
    assert recipes.cores_measured(other) == 0
    assert recipes.cache_key(OPEN, "of a node") == recipes.cache_key(OPEN, "of a node")
    assert recipes.cache_key(OPEN) != recipes.cache_key(OPEN, "of a node")


def test_a_file_says_for_how_many_cores_it_holds(tmp_path, laboratory, monkeypatch):
    monkeypatch.setattr(recipes, "ROUNDS", 1)
    file = tmp_path / "recipe.json"
    assert recipes.cores_measured(file) == 0
    recipes.calibrate(OPEN, laboratory.data(), 1, file)
    assert recipes.cores_measured(file) == 1
    file.write_text("{")
    assert recipes.cores_measured(file) == 0


class Slow(torch.nn.Module):
    """Takes its time in one memory format."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.steps = seconds, 0
        self.layer = torch.nn.LazyLinear(3)
        self.filters = torch.nn.Conv2d(3, 3, 1)  # which has memory formats

    def forward(self, images):
        self.steps += 1
        time.sleep(self.seconds)
        return self.layer(images.flatten(1))


def test_a_recipe_that_is_far_too_slow_is_timed_a_few_times(laboratory, monkeypatch, tmp_path):
    slow = {"contiguous": Slow(0.001), "channels_last": Slow(0.02)}
    for model in slow.values():
        model(torch.zeros(2, 3, 8, 8))
    monkeypatch.setattr(models, "build", lambda run, *_: slow[run.memory_format])
    run = vary(OPEN, precision="fp32", threads_per_worker=1)
    recipes._measure_all(run, laboratory.data(), 1, 1, tmp_path / "recipe", None)
    # In this test, here, and as warm-up; the other one's images have been counted before.
    assert slow["channels_last"].steps == 2 + recipes.LEAST_ROUNDS
    assert slow["contiguous"].steps == 4 + recipes.ROUNDS
    timings = json.loads((tmp_path / "recipe").read_text())["timings"]
    assert [timing["memory_format"] for timing in timings] == ["contiguous", "channels_last"]


def test_a_step_that_was_disturbed_does_not_decide(laboratory, monkeypatch, tmp_path):
    models_in = {"contiguous": Slow(0.001), "channels_last": Slow(0.004)}
    for model in models_in.values():
        model(torch.zeros(2, 3, 8, 8))
    sleep, sleeps = time.sleep, []

    def disturbed(seconds):
        sleeps.append(seconds)
        # The first step of the faster one that is timed, after three to warm up and count images.
        sleep(0.1 if seconds == 0.001 and sleeps.count(seconds) == 4 else seconds)

    monkeypatch.setattr(time, "sleep", disturbed)
    monkeypatch.setattr(models, "build", lambda run, *_: models_in[run.memory_format])
    run = vary(OPEN, precision="fp32", threads_per_worker=1)
    recipes._measure_all(run, laboratory.data(), 1, 1, tmp_path / "recipe", None)
    assert models_in["contiguous"].steps > 10
    assert recipes.fill_in(run, tmp_path / "recipe", 1).memory_format == "contiguous"


def test_a_model_without_filters_has_one_memory_format(laboratory, monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "ROUNDS", 1)
    run = vary(OPEN, precision="fp32", threads_per_worker=1)
    recipes._measure_all(run, laboratory.data(), 1, 1, tmp_path / "recipe", None)
    timings = json.loads((tmp_path / "recipe").read_text())["timings"]
    assert [timing["memory_format"] for timing in timings] == ["contiguous"]


@pytest.mark.parametrize(
    ("has_instructions", "capability", "known"),
    [(False, "AVX512", False), (True, "AVX512", True), (True, "AVX2", False)],
)
def test_bf16_is_not_tried_without_instructions(
    laboratory, monkeypatch, tmp_path, has_instructions, capability, known
):
    monkeypatch.setattr(recipes, "ROUNDS", 1)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: has_instructions)
    recipes.calibrate(vary(OPEN, threads_per_worker=1), laboratory.data(), 1, tmp_path / "recipe")
    timings = json.loads((tmp_path / "recipe").read_text())["timings"]
    assert {timing["precision"] for timing in timings} == {"fp32", *(["bf16"] if known else [])}


def test_what_is_given_is_not_measured():
    run = vary(OPEN, precision="fp32")
    candidates = recipes.candidates(run, 6)
    assert {recipe["precision"] for recipe in candidates} == {"fp32"}
    assert [recipe["threads_per_worker"] for recipe in candidates] == [1, 1, 2, 2, 4, 4, 6, 6]
    fixed = recipes.candidates(vary(run, threads_per_worker=3), 6)
    assert [recipe["threads_per_worker"] for recipe in fixed] == [3, 3]


def test_the_cache_key_changes_with_what_a_recipe_depends_on():
    asked = [
        OPEN,
        vary(OPEN, precision="fp32"),
        vary(OPEN, batch_size=12),
        vary(OPEN, model=LENET),
        vary(OPEN, dataset=dataclasses.replace(OPEN.dataset, label="another")),
    ]
    assert len({recipes.cache_key(run) for run in asked}) == len(asked)
    alike = vary(OPEN, seed=3, epochs=9, fold=1, folds=5)
    assert recipes.cache_key(alike) == recipes.cache_key(OPEN)
    assert f'"torch": "{torch.__version__.partition("+")[0]}' in recipes.cache_key(OPEN)


def test_every_candidate_is_measured(laboratory, monkeypatch):
    # One thread only: this process may have used more, and what it forks must not then.
    monkeypatch.setattr(recipes, "ROUNDS", 2)
    run, file = vary(OPEN, model=LENET), laboratory.folder / "recipes" / "recipe.json"
    recipes.calibrate(run, laboratory.data(), 1, file)
    calibration = json.loads(file.read_text())
    assert [{key: timing[key] for key in run.recipe} for timing in calibration["timings"]] == [
        {key: recipe[key] for key in run.recipe}
        for recipe in recipes.candidates(run, 1, recipes.precisions())
    ]
    assert len(calibration["timings"]) == 2 * len(recipes.precisions())
    assert recipes.fill_in(run, file, 2).threads_per_worker == 1


class OnlyContiguous(torch.nn.Module):
    """As many models are written: view() does not take channels-last features."""

    def __init__(self, channels, classes):
        super().__init__()
        self.features = torch.nn.Conv2d(channels, 8, 3)
        self.head = torch.nn.LazyLinear(classes)

    def forward(self, images):
        return self.head(self.features(images).view(len(images), -1))


def test_a_candidate_that_does_not_work_is_left_out(laboratory, monkeypatch, capfd):
    monkeypatch.setattr(recipes, "ROUNDS", 1)
    monkeypatch.setattr(models, "build", lambda run, *_: model_in(run.memory_format))

    def model_in(memory_format):
        model = OnlyContiguous(3, 3)
        model(torch.zeros(1, 3, 8, 8))
        return model.to(memory_format=models.MEMORY_FORMATS[memory_format])

    file = laboratory.folder / "recipe.json"
    recipes.calibrate(vary(OPEN, precision="fp32"), laboratory.data(), 1, file)
    assert recipes.fill_in(OPEN, file, 1).memory_format == "contiguous"
    assert "channels_last  1 thread(s)  does not work: view size" in capfd.readouterr().out
    with pytest.raises(failures.RankFailedError, match="view size is not compatible"):
        run = vary(OPEN, precision="fp32", memory_format="channels_last")
        recipes.calibrate(run, laboratory.data(), 1, file)


def test_bf16_rounds_and_learns(laboratory):
    run = vary(model=LENET, epochs=4)
    exact, weights = laboratory.trained(run)
    rounded, others = laboratory.trained(vary(run, precision="bf16"), "bf16")
    assert all(weight.dtype == torch.float32 for weight in others.values())
    assert not torch.equal(weights["0.weight"], others["0.weight"])
    assert rounded["epochs"][-1]["loss"] == pytest.approx(exact["epochs"][-1]["loss"], rel=0.05)


def test_a_recipe_is_a_models_or_the_configs_and_a_list_compares():
    sgd = {"name": "sgd", "lr": 0.1}
    entry = {"name": "mlp", "batch_size": 8, "epochs": 1, "optimizer": sgd}
    models = {"both": entry | {"precision": ["fp32", "bf16"]}, "other": entry}
    study = {"datasets": ["digits"], "folds": 2, "models": [*models]}
    config = {"models": models, "studies": {"a": study}, "memory_format": "contiguous"}
    assert checks.findings(config) == []
    runs = grid.expand(sweeps.expanded(config)).runs.values()
    assert {(run.model.label, run.precision, run.memory_format) for run in runs} == {
        ("both-precisionfp32", "fp32", "contiguous"),
        ("both-precisionbf16", "bf16", "contiguous"),
        ("other", "auto", "contiguous"),
    }


def test_what_another_processor_has_measured_stays(tmp_path):
    """As in a folder that two machines share."""
    project = copy(tmp_path)

    def change(config):
        config["memory_format"] = AUTO
        config["studies"]["first"] |= {"models": ["mlp"], "strategies": ["serial"]}

    project.configure(change)
    project.call("--until", "train", "train_several")
    file = project.results / "recipes" / "tiny" / "mlp_all.json"
    record = Record.read(file)
    made_of = json.dumps(json.loads(record.made_of) | {"processor": "another one"})
    Record(made_of, content=record.content).write(file)
    content = file.read_bytes()
    assert not project.planned("--until", "train", "train_several").get("total")
    project.configure(lambda config: config["models"]["mlp"].update(epochs=3))
    project.call("--until", "train", "train_several")
    assert file.read_bytes() == content
    assert [one.name for one in file.parent.glob("*.json") if one != file] == [
        recipes.for_this_processor(file).name
    ]
    assert not project.planned("--until", "train", "train_several").get("total")


def test_a_run_measures_nothing_again_for_cores_that_its_call_has_not(tmp_path):
    """A call on fewer cores than there are."""
    project = copy(tmp_path)
    study = {"models": ["mlp"], "strategies": ["serial"], "threads_per_worker": [AUTO]}
    project.configure(lambda config: config["studies"]["first"].update(study))
    project.call("--until", "train", "train_several", cores="1")
    logs = [*(project.results / "logs" / "train").rglob("*.log")]
    assert logs and not any("measuring the fastest" in log.read_text() for log in logs)
