"""The campaign that is disturbed in a drill, and what must not depend on what was done to it."""

import numpy as np
import pandas as pd
import torch
import yaml

from allcores_study.records import run_files

CONFIG = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 30, optimizer: {name: adam, lr: 0.01}}
  lenet: {width: 0.5, batch_size: 16, epochs: 6, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}
  own: {import: "own:Net", batch_size: 8, epochs: 20, optimizer: {name: sgd, lr: 0.05}}
  swept:
    name: mlp
    hidden: [8]
    batch_size: 16
    epochs: 4
    optimizer: {name: sgd, lr: [0.001, 0.5, 0.01, 0.1]}
  small:
    name: mlp
    hidden: [[8], [6, 5]]
    batch_size: 16
    epochs: 6
    optimizer: {name: adam, lr: [0.01, 0.1]}
  drawn:
    name: mlp
    hidden: [8]
    batch_size: 16
    epochs: 4
    optimizer: {name: sgd, lr: {log: [0.001, 1.0]}}
    sample: 6
  text_cnn: {features: 4, batch_size: 8, epochs: 4, optimizer: {name: adam, lr: 0.01}}
  unet: {width: 0.25, batch_size: 8, epochs: 3, optimizer: {name: sgd, lr: 0.05}}
  forest: {import: "sklearn.ensemble:RandomForestClassifier", n_estimators: 5}
datasets:
  texts: {name: text, path: texts.csv, text: text, target: kind}
  masks: {name: npz, path: masks.npz, task: segmentation}
  again: {name: npz, path: again.npz, task: regression}
  labels: {name: npz, path: labels.npz, task: multilabel}
  tiny: {name: fake, count: 200, test: 0, size: 8, classes: 3}
  costs: {name: table, path: costs.csv, target: cost, task: regression, time: day}
strategies:
  servers: {name: parameter_server, servers: 2}
studies:
  equal:
    datasets: [tiny]
    folds: 2
    models: [mlp, lenet]
    schedules: [warm_restarts]
    strategies: [serial, data_parallel, ddp, ring, servers, local_sgd, gossip, shared_memory]
    workers: [2]
    curves: true
    exclusive: true
    oversubscribe: true
  chance:
    datasets: [tiny]
    folds: 2
    models: [mlp]
    strategies: [hogwild, async_parameter_server]
    workers: [2]
    exclusive: true
    oversubscribe: true
  numbers: {datasets: [costs], folds: 3, models: [mlp], strategies: [serial, ring], workers: [2]}
  mine: {datasets: [tiny], folds: 2, models: [own], strategies: [serial, ddp], workers: [2]}
  sweep: {datasets: [tiny], folds: 2, models: [swept], select: 2, final: true}
  drawn: {datasets: [tiny], folds: 2, models: [drawn], select: 2, exclusive: true}
  stacked: {datasets: [tiny], folds: 2, models: [small], select: 3}
  texts: {datasets: [texts], folds: 2, models: [text_cnn], strategies: [serial, ddp], workers: [2]}
  masks:
    datasets: [masks]
    folds: 2
    models: [unet]
    strategies: [serial, shared_memory]
    workers: [2]
  again: {datasets: [again], folds: 2, models: [mlp]}
  labels: {datasets: [labels], folds: 2, models: [mlp]}
  baselines: {datasets: [tiny], folds: 2, models: [forest]}
  shared: {datasets: [tiny], folds: 3, models: [lenet], schedules: [cosine], seeds: [1, 2]}
precision: fp32
memory_format: contiguous
runs_per_job: 4 # so that some share jobs, however long this machine takes
"""
# What is changed on the way, in two versions: the table, and a model of the user's own.
VERSIONS = (0, 1)
MODEL_SOURCE = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, channels, image_size, classes):
        pixels = channels * image_size[0] * image_size[1]
        super().__init__(nn.Flatten(), nn.Linear(pixels, {units}), nn.Linear({units}, classes))
"""
# Study -> what of it has versions.
CHANGING = {"numbers": "data", "mine": "model"}
# How often what happens depends on which worker is faster.
BY_CHANCE = ("/hogwild/", "/async_parameter_server/")
STUDIES_BY_CHANCE = ("chance",)
LEARNING = ("loss", "lr", "accuracy", "held_out_loss")  # of an epoch
# Of tables, the columns that hold no time; None: all.
COLUMNS = {
    "accuracy_table.csv": [
        *("accuracy", "r2", "standard_deviation", "low_95", "high_95"),
        *("pairs", "difference", "low", "high", "p", "p_corrected", "finding"),
    ],
    "candidates.csv": ["split", "candidate", "epochs", "score", "chosen"],
    "per_class_table.csv": None,
    "confusion.csv": None,
}


def write_data(folder, version):
    """The table of a version: another one has another number in one place."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((90, 3)), columns=["a", "b", "c"])
    frame["cost"] = frame.sum(axis=1) + 0.1 * random.standard_normal(90)
    frame["day"] = np.arange(90)
    frame.loc[7, "cost"] += version
    frame.to_csv(folder / "costs.csv", index=False)
    words, kinds = np.array(["red", "green", "blue", "round"]), np.arange(40) % 2
    texts = [
        " ".join(random.choice(words[kind::2], 1 + place % 5)) for place, kind in enumerate(kinds)
    ]
    pd.DataFrame({"text": texts, "kind": kinds}).to_csv(folder / "texts.csv", index=False)
    masks = (random.standard_normal((24, 8, 8)) > 0.5).astype(np.uint8)
    np.savez(folder / "masks.npz", images=100 * masks, masks=masks)
    rows = random.standard_normal((40, 5)).astype(np.float32)
    np.savez(folder / "again.npz", inputs=rows, targets=rows[:, 0])
    np.savez(folder / "labels.npz", inputs=rows, labels=(rows[:, :2] > 0).astype(int))


def write_model(folder, version):
    """The user's model of a version."""
    (folder / "own.py").write_text(MODEL_SOURCE.format(units=4 + version))


def write_twin(project, version):
    """The config of a project that is left alone, with data and model of a version."""
    config = yaml.safe_load(CONFIG)
    if version != VERSIONS[0]:
        config["studies"] = {name: config["studies"][name] for name in CHANGING}
    project.config.write_text(yaml.safe_dump(config, sort_keys=False))
    write_data(project.folder, version)
    write_model(project.folder, version)


def differences(project, twins, versions):
    """What of a project that came to its end is not as in those that were left alone.

    Args:
        project: the project.Project.
        twins: version -> the Project that was left alone with data and model of that version.
        versions: {"data": version, "model": version} that the project has.
    """
    for path, files in _runs(project).items():
        changing = "data" if path.startswith("costs/") else "model" if "/own/" in path else None
        twin = twins[versions[changing] if changing else VERSIONS[0]]
        theirs = _runs(twin).get(path)
        if theirs is None or not _equal_runs(path, files, theirs):
            yield path
    for study in yaml.safe_load(CONFIG)["studies"]:
        twin = twins[versions[CHANGING[study]] if study in CHANGING else VERSIONS[0]]
        folders = [instance.results / "studies" / study for instance in (project, twin)]
        counts = [len(pd.read_csv(folder / "runs.csv")) for folder in folders]
        if counts[0] != counts[1]:
            yield f"{study}: {counts[0]} runs of {counts[1]}"
        if study not in STUDIES_BY_CHANCE:
            yield from _different_tables(*folders)


def _runs(project):
    """Path -> folder of each run."""
    runs = project.results / "runs"
    return {str(folder.relative_to(runs)): folder for folder in run_files.below(runs)}


def _equal_runs(path, *both):
    metrics, their_metrics = map(run_files.metrics, both)
    counted = ("train_samples", "held_out_samples", "diverged")
    if any(metrics[key] != their_metrics[key] for key in counted):
        return False
    if "_inner" in path:  # it has no other files
        return metrics["scores"] == their_metrics["scores"]
    weights, their_weights = (torch.load(one / "weights.pt") for one in both)
    if any(name in path for name in BY_CHANCE):
        return all(torch.isfinite(tensor).all() for tensor in weights.values())
    epochs, their_epochs = (
        [[epoch.get(key) for key in LEARNING] for epoch in of_run["epochs"]]
        for of_run in (metrics, their_metrics)
    )
    predictions = [pd.read_parquet(one / "predictions.parquet") for one in both]
    return (
        all(torch.equal(weights[key], their_weights[key]) for key in weights | their_weights)
        and epochs == their_epochs
        and predictions[0].equals(predictions[1])
    )


def _different_tables(folder, twin):
    for name, columns in COLUMNS.items():
        files = [folder / name, twin / name]
        there = [file.exists() for file in files]
        if not any(there):
            continue
        tables = [pd.read_csv(file) for file in files] if all(there) else [pd.DataFrame(), None]
        if columns and all(there):
            tables = [table[[column for column in columns if column in table]] for table in tables]
        if not tables[0].equals(tables[1]):
            yield f"{folder.name}/{name}"
