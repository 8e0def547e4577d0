"""What a study can ask for, from end to end."""

import html

import pandas as pd
from project import copy

EVERYTHING = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: fake, count: 60, test: 20, size: 8, classes: 3}
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
        *("report.html", "learning_curve_figure.png", "target_table.csv", "size_figure.png"),
        *("published_table.csv", "elapsed_figure.png", "staleness_figure.png"),
    ],
    "packed": ["report.html", "packing_table.csv", "packing_figure.png"],
}


def test_what_else_a_study_can_end_with(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(EVERYTHING)
    folder = project.results / "studies"
    wanted = [folder / study / name for study, names in FILES.items() for name in names]
    project.call()
    assert all(file.stat().st_size > 200 for file in wanted)
    speed = pd.read_csv(folder / "alone" / "speed_table.csv")
    # Three workers of two threads on two cores.
    assert set(speed.loc[speed["strategy"] == "hogwild", "note"]) == {"oversubscribed"}
    report = html.unescape((folder / "packed" / "report.html").read_text())
    for sentence in (folder / "packed" / "verdict.txt").read_text().splitlines():
        assert sentence[:40] in report
    # The packed runs began when the last of the others had ended.
    alone, packed = (pd.read_csv(folder / study / "runs.csv") for study in ("alone", "packed"))
    assert packed["started"].min() >= alone["ended"].max(), "those that must be alone come first"
