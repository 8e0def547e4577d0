"""A run by hand: flags of scripts/train.py become a config of one run, and the job for it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from allcores.machine import cores
from allcores_study import yaml_files
from allcores_study.campaign import commands, warm_start
from allcores_study.config import component, grid, registry
from allcores_study.data import preparation
from allcores_study.planning import preflight
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.training import run_request

RESULTS = ResultsFolder("results/by_hand")
# For a model without an entry in the config.
DEFAULT_ENTRY = {"batch_size": 64, "epochs": 5, "optimizer": {"name": "adam", "lr": 0.001}}
STUDY, FOLDS = "by_hand", 5  # the first fold is held out


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that describe a run."""
    add = parser.add_argument_group("what to train").add_argument
    known = registry.models(), registry.datasets(), registry.strategies()
    models, datasets, strategies = (f"built in: {', '.join(names)}" for names in known)
    add("--model", metavar="NAME", help=f"{models}; or package.module:Net; or a label")
    add("--dataset", default="digits", metavar="NAME", help=f"{datasets}; or a label (digits)")
    add("--strategy", default="serial", metavar="NAME", help=f"{strategies}; or a label (serial)")
    add("--workers", type=int, default=1, metavar="N", help="processes that train (default: 1)")
    add("--epochs", type=int, metavar="N", help="default: those of the model's entry, else 5")
    settings = "for what labels stand for (default: config/config.yaml)"
    add("--config", type=Path, default=registry.CONFIG, metavar="FILE", help=settings)


def job_of(flags: argparse.Namespace) -> Path:
    """Prepare the data of the run that the flags describe; return the file of its job.

    Raises:
        ValueError: something is unknown or does not fit; one line per finding.
        OSError: the config cannot be read.
    """
    config, table = expanded(flags)
    command = warm_start.command(preflight.PROGRAM, is_warm=False)
    if problems := preflight.findings(config, table, [flags.config], RESULTS.tried_out, command):
        raise ValueError("\n".join(problems))
    run = table.of(STUDY)[0]
    cores.set_thread_variables(1)  # ranks cannot be forked from a process in which torch has more
    data = Path(RESULTS.path, "data", f"{run.dataset.label}_{run.dataset.digest}")
    preparation.prepare(run.dataset, config["downloads"], data)
    # One folder per set of settings, so that two runs never share one.
    name = f"{run.model.label}_{run.strategy.label}_w{run.workers}_{run.digest}"
    output, checkpoints = Path(RESULTS.run(name)), Path(RESULTS.path, "checkpoints", name)
    places = {"data_folder": data, "checkpoint_folder": checkpoints, "output": output}
    request = run_request.RunRequest(run=run, save_every=600.0, **places)  # type: ignore[arg-type]
    file = Path(RESULTS.job(name, "json"))
    run_request.write(file, RESULTS.path, [request])
    return file


def expanded(flags: argparse.Namespace) -> tuple[dict[str, Any], grid.Table]:
    """Return the config of one run that the flags describe, and its table; raises as job_of()."""
    config = yaml_files.read(flags.config)
    label = flags.model.replace(":", ".")
    entry = dict((config.get("models") or {}).get(label) or {})
    entry |= {"import": flags.model} if ":" in flags.model else {}
    entry = entry if component.is_estimator(entry) else DEFAULT_ENTRY | entry
    entry |= {} if flags.epochs is None else {"epochs": flags.epochs}
    study = {"datasets": [flags.dataset], "folds": FOLDS, "models": [label]}
    study |= {"strategies": [flags.strategy], "workers": [flags.workers]}
    config |= {"models": {label: entry}, "studies": {STUDY: study}}
    config = commands.checked(config, [flags.config])
    table = grid.expand(config)
    if len(config["models"]) > 1:
        raise ValueError(f"--model: {label} is swept over; write a study with one of its values")
    if table.of(STUDY)[0].workers != flags.workers:
        raise ValueError(f"--workers: found {flags.workers}; {flags.strategy} takes only one")
    return config, table
