"""What the files of datasets recommend, in the place of a model's entry."""

import pytest
import yaml

from allcores.planning import trials
from allcores.study import checks, grid, registry, sweeps

RECOMMENDING = """
models:
  best: {preset: recommended, epochs: [2, 3]}
studies:
  mine: {datasets: [DATASETS], folds: 3, models: [best], schedules: [onecycle]}
"""


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, dataset in registry.datasets().items()
        if sweeps.RECOMMENDED in dataset.constants
    ],
)
def test_what_is_recommended_for_a_dataset_can_be_trained(tmp_path, name):
    config = yaml.safe_load(RECOMMENDING.replace("DATASETS", name))
    assert checks.findings(config) == []
    models = sweeps.expanded(config)["models"]
    assert list(models) == ["best-epochs2", "best-epochs3"], "what an entry says itself holds"
    recommended = registry.datasets()[name].constants[sweeps.RECOMMENDED]
    assert models["best-epochs2"] == recommended | {"epochs": 2}
    run = next(iter(grid.expand(sweeps.expanded(config)).runs.values()))
    metadata = registry.metadata(run.dataset)
    shape, task = metadata.shape, metadata.task
    assert trials.tried_out(run.plain, shape, task)


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("recommended", "usual", 3, "models.best.preset: found 'usual'; known: recommended"),
        ("epochs:", "name: mlp, epochs:", 3, "expected no other by `name` or `import`"),
        ("epochs: [2, 3]", "validation: 0.001", 3, "of the 118 samples"),
        ("epochs: [2, 3]", "optimizer: {lr: [0.1, 0.2]}", 3, None),
    ],
)
def test_what_is_said_beside_a_recommendation(tmp_path, old, new, line, text):
    file = tmp_path / "mine.yaml"
    file.write_text(RECOMMENDING.replace("DATASETS", "wine").replace(old, new))
    config = yaml.safe_load(file.read_text())
    findings = checks.findings(config, [file])
    if text:
        assert any(
            finding.startswith(f"{file}:{line}: ") and text in finding for finding in findings
        ), findings
        return
    assert findings == []
    models = sweeps.expanded(config)["models"]
    assert [model["optimizer"]["lr"] for model in models.values()] == [0.1, 0.2]
    assert {model["optimizer"]["name"] for model in models.values()} == {"adamw"}


@pytest.mark.parametrize(
    ("study", "text"),
    [
        ({}, None),
        ({"select": 2}, "of the 59 samples"),
        ({"train_sizes": [60, "all"]}, "of the 60 "),
    ],
)
def test_a_validation_part_suits_the_smallest_training_part(study, text):
    config = yaml.safe_load(RECOMMENDING.replace("DATASETS", "wine"))
    config["models"]["best"]["validation"] = 0.03
    config["studies"]["mine"] |= study
    findings = checks.findings(config)
    assert bool(findings) == bool(text)
    assert all(text in finding and "that is less than 3" in finding for finding in findings)


@pytest.mark.parametrize("datasets", ["fake", "digits, wine", "unheard_of"])
def test_nothing_is_recommended_for_anything(tmp_path, datasets):
    file = tmp_path / "mine.yaml"
    file.write_text(RECOMMENDING.replace("DATASETS", datasets))
    findings = checks.findings(yaml.safe_load(file.read_text()), [file])
    expected = f"{file}:3: models.best.preset: is used with {datasets}; expected one dataset"
    assert any(finding.startswith(expected) for finding in findings), findings
