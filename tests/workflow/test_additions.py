"""What a stranger adds is one file: a strategy, a model, a dataset, a task and a schedule."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from conftest import ENVIRONMENT, ROOT
from project import copy

MODEL = '''"""A layer that is as wide as one likes."""
from torch import nn

ALLOWED = {"hidden": 1}


def wide(channels, image_size, classes, hidden=8):
    height, width = image_size
    parts = [nn.Linear(channels * height * width, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
    return nn.Sequential(nn.Flatten(), *parts)
'''
DATASET = '''"""Images whose lower or upper half is bright."""
import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks.base import named


def load(folder, *, count=60):
    labels = np.arange(count) % 2
    images = np.zeros((count, 1, 8, 8), np.uint8)
    images[labels == 1, :, 4:] = 200
    task = named("classification", 2)
    return Samples(images.shape, [images], labels, count, task, ["above", "below"])
'''
TASK = '''"""Counts of events: a model gives the logarithm of the expected one."""
import numpy as np

from allcores_study.tasks.regression import Regression

TARGETS = "numbers"
LOSS = "PoissonNLLLoss"
LOSSES = ("PoissonNLLLoss",)
WEIGHTED = ()
METRICS = ("r2", "rmse", "mae")
IS_SCALED = False
STRATIFIED = ""


class Counts(Regression):
    def scaling(self, targets):
        return 0.0, 1.0

    def answers(self, scores, scaling):
        return scores.double().exp()
'''
EVENTS = '''"""How often something happens, twice as often for each step of the first feature."""
import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks.base import named

TASK = "counts"


def load(folder):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(120, 2)).astype(np.float32)
    counts = random.poisson(4 * 2 ** inputs[:, 0])
    return Samples((120, 2), [inputs], counts, 120, named("counts", 1), dtype=np.float32)
'''
COUNTS = """
models:
  mlp: {hidden: [8], batch_size: 10, epochs: 12, optimizer: {name: adam, lr: 0.02}}
studies:
  s: {datasets: [events], folds: 2, models: [mlp], strategies: [serial, ddp], workers: [2]}
runs_per_job: 1
"""
SCHEDULE = """

def halves(optimizer, total_steps):
    return lr_scheduler.StepLR(optimizer, step_size=max(1, total_steps // 2), gamma=0.5)
"""
METRIC = """

@metric(title="certainty", in_percent=True)
def certainty(true, predicted, probabilities):
    return probabilities.max(axis=1).mean()
"""
OWN_METRIC = """
def lowest(true, predicted, probabilities):
    return probabilities.min()
"""
STUDY = """
models:
  wide: {hidden: 9, batch_size: 10, epochs: 3, optimizer: {name: sgd, lr: 0.01}}
studies:
  s:
    datasets: [stripes]
    folds: 2
    models: [wide]
    schedules: [halves]
    strategies: [serial, sign_sgd]
    workers: [2]
    metrics: [certainty, "mine:lowest", accuracy]
runs_per_job: 1
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("additions"), linked=())
    library = project.folder / "scripts" / "allcores_study"
    (library / "models" / "wide.py").write_text(MODEL)
    (library / "datasets" / "stripes.py").write_text(DATASET)
    (library / "datasets" / "events.py").write_text(EVENTS)
    (library / "tasks" / "counts.py").write_text(TASK)
    with (library / "training" / "schedules.py").open("a") as schedules:
        schedules.write(SCHEDULE)
    with (library / "analysis" / "measures.py").open("a") as measures:
        measures.write(METRIC)
    (project.folder / "mine.py").write_text(OWN_METRIC)
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "reading.md").read_text(), re.DOTALL
    )
    (strategy,) = [block for block in blocks if "(Strategy)" in block]
    engine = project.folder / "scripts" / "allcores"
    (engine / "strategies" / "sign_sgd.py").write_text(strategy)
    return project


def test_a_study_of_what_was_added_is_trained(project):
    project.config.write_text(STUDY)
    table = "results/mine/studies/s/accuracy_table.csv"
    project.call(table)
    all_metrics = list(project.results.rglob("metrics.json"))
    assert len(all_metrics) == 4
    for file in all_metrics:
        metrics = json.loads(file.read_text())
        assert metrics["names"] == ["above", "below"]
        rates = [epoch["lr"] for epoch in metrics["epochs"]]
        assert rates == [0.01, 0.005, 0.0025]
    scores = pd.read_csv(project.folder / table)
    assert scores["certainty"].between(0.5, 1).all()
    assert scores["mine:lowest"].between(0, 0.5).all()
    page = (project.folder / table).with_name("report.html").read_text()
    assert "certainty" in page and "lowest" in page
    assert project.planned(table) == {}
    project.edit("mine.py", "min()", "max()")
    assert project.planned("report_s") == {"report_s": 1, "total": 1}


def test_a_task_that_was_added_is_trained_and_scored(project):
    project.config.write_text(COUNTS)
    project.call()
    files = list(project.results.glob("runs/events/**/metrics.json"))
    assert files
    for file in files:
        metrics = json.loads(file.read_text())
        assert metrics["task"] == "counts"
        assert metrics["settings"]["loss"]["name"] == "PoissonNLLLoss"
    folder = project.results / "studies" / "s"
    predicted = pd.read_parquet(folder / "predictions.parquet")["predicted"]
    assert predicted.min() > 0
    scores = pd.read_csv(folder / "accuracy_table.csv").set_index("strategy")["r2"]
    assert scores.min() > 0.3
    assert scores["serial"] == pytest.approx(scores["ddp"], abs=1e-4)
    assert (folder / "residuals_figure.png").exists()
    assert "; targets standardised" not in (folder / "report.html").read_text()
    events = project.folder / "scripts" / "allcores_study" / "datasets" / "events.py"
    events.write_text(events.read_text().replace('named("counts"', 'named("regression"'))
    assert "events is for counts, but load() returns regression" in project.call(expect=1)


def test_the_command_of_the_documentation_trains_it(project):
    page = (ROOT / "docs" / "reading.md").read_text()
    (command,) = re.findall(r"python (scripts/train.py .*sign_sgd.*)", page)
    process = subprocess.run(
        [sys.executable, *shlex.split(command)],
        cwd=project.folder,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    accuracy = float(re.search(r"accuracy ([\d.]+)%", process.stdout)[1])
    assert accuracy > 50


def test_the_tests_of_all_strategies_hold_it_to_what_it_promises(project):
    """Where this file is not: it would add the strategy to a copy of the copy."""
    left_out = shutil.ignore_patterns("__pycache__", "test_additions.py")
    shutil.copytree(ROOT / "tests", project.folder / "tests", ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", project.folder)
    tests = [
        "tests/engine/strategies/test_strategies.py",
        "tests/project/test_house.py",
        "tests/study/models/test_models.py",
    ]
    tests += ["tests/study/training/test_schedules.py", "tests/study/data/test_datasets.py"]
    # The manual would have to be written again.
    selected = "(sign_sgd or wide or halves or stripes or house) and not manual"
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--numprocesses=0", "-k", selected, *tests],
        cwd=project.folder,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    assert "sign_sgd" in process.stdout
