"""What a study can ask for, from end to end."""

import html
import json

import pandas as pd
from project import copy

EVERYTHING = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: synthetic, count: 60, test: 20, size: 8, classes: 3}
studies:
  alone:
    datasets: [tiny]
    folds: 2
    models: [mlp]
    strategies: [serial, hogwild]
    workers: [3]
    threads_per_worker: [2]
    train_sizes: [20, all]
    curves: true
    target_accuracy: 0.2
    exclusive: true
    oversubscribe: true
    references: [{model: mlp, label: somebody, cores: 4, seconds: 1.5, images: 60}]
  packed:
    datasets: [tiny]
    folds: 2
    models: [mlp]
    strategies: [serial]
    against: alone
"""


# What the study of test_workflow.py does not end with.
FILES = {
    "alone": [
        *("report.html", "learning_curve_figure.png", "target_table.html", "size_figure.png"),
        *("elapsed_table.html", "elapsed_figure.png", "staleness_figure.png"),
    ],
    "packed": ["report.html", "packing_table.html", "packing_figure.png"],
}


def test_what_else_a_study_can_end_with(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(EVERYTHING)
    folder = project.results / "studies"
    wanted = [folder / study / name for study, names in FILES.items() for name in names]
    targets = [file.relative_to(tmp_path) for file in wanted]
    project.call(*targets)
    assert all(file.stat().st_size > 200 for file in wanted)
    speed = pd.read_csv(folder / "alone" / "speed_table.csv")
    # Three workers of two threads on two cores.
    assert set(speed.loc[speed["strategy"] == "hogwild", "note"]) == {"oversubscribed"}
    report = html.unescape((folder / "packed" / "report.html").read_text())
    for sentence in (folder / "packed" / "verdict.rst").read_text().splitlines()[2:]:
        assert sentence[2:40] in report
    # The packed runs began when the last of the others had ended.
    alone, packed = (pd.read_csv(folder / study / "runs.csv") for study in ("alone", "packed"))
    assert packed["started"].min() >= alone["ended"].max(), "those that must be alone come first"


OPEN = """
runs_per_job: 1
models:
  mlp: {batch_size: 16, epochs: 1, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: synthetic, count: 60, test: 0, size: 8, classes: 3}
studies:
  first:
    datasets: [tiny]
    folds: 2
    models: [mlp]
    strategies: [serial, ddp]
    workers: [2]
    threads_per_worker: [auto]
"""


def test_what_is_left_open_is_measured_once_and_then_used(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(OPEN)
    planned = project.planned()
    assert planned["train"] == 4
    assert planned["calibrate"] == 2
    output = project.call("--verbose")
    assert output.count("Measure the fastest recipe of mlp") == 2
    found = list((project.results / "runs").rglob("metrics.json"))
    assert len(found) == 4
    for file in found:
        metrics = json.loads(file.read_text())
        assert metrics["settings"]["threads_per_worker"] == "auto"
        threads = metrics["recipe"]["threads_per_worker"]
        assert threads in ((1, 2) if "serial" in str(file) else (1,))
        assert metrics["machine"]["threads_per_process"] == threads
    assert project.planned() == project.planned(cores=None) == {}
    # Another seed and learning rate ask the same question, another batch another one.
    project.configure(lambda config: config["studies"]["first"].update(seeds=[1]))
    project.configure(lambda config: config["models"]["mlp"]["optimizer"].update(lr=0.1))
    assert "calibrate" not in project.planned()
    # What was measured on these cores holds for fewer, and not for more.
    assert project.planned(cores="4")["calibrate"] == 2
    project.configure(lambda config: config["models"]["mlp"].update(batch_size=8))
    assert project.planned()["calibrate"] == 2
