"""The flags of scripts/train.py, and the Run that they describe."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from allcores_study.config import component, grid, registry, schema
from allcores_study.config.run import Run

# For a model without an entry in the config.
DEFAULT_ENTRY = {"batch_size": 64, "epochs": 5, "optimizer": {"name": "adam", "lr": 0.001}}
FOLDS = 5  # the first is held out


def parse(arguments: list[str], description: str | None) -> argparse.Namespace:
    """Return the parsed flags.

    Raises:
        SystemExit: help was requested or a flag is wrong; argparse has printed which.
    """
    parser = _parser(description)
    flags = parser.parse_args(arguments)
    for flag in ("timeout", "checkpoint_minutes"):
        value = getattr(flags, flag)
        if not value > 0:
            parser.error(f"--{flag.replace('_', '-')}: found {value:g}; expected more than 0")
    if not (flags.job or flags.settings or flags.model):
        parser.error("--model is missing; try --help")
    return flags


@functools.cache
def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for add_group in (_add_by_hand, _add_for_workflow):
        add_group(parser)
    return parser


def _add_by_hand(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to train").add_argument
    models, datasets = registry.models(), registry.datasets()
    strategies = registry.strategies()
    add(
        "--model",
        metavar="NAME",
        help=f"built in: {_names(models)}; or package.module:Net; or a label in the config",
    )
    add(
        "--dataset",
        default="digits",
        metavar="NAME",
        help=f"built in: {_names(datasets)}; or a label in the config (default: digits)",
    )
    add(
        "--strategy",
        default="serial",
        metavar="NAME",
        help=f"built in: {_names(strategies)}; or a label in the config (default: serial)",
    )
    add(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of processes that train (default: 1)",
    )
    add(
        "--epochs",
        type=int,
        metavar="N",
        help="number of epochs (default: that of the model's entry in the config; without one, "
        f"{DEFAULT_ENTRY['epochs']})",
    )
    add(
        "--config",
        type=Path,
        default=registry.CONFIG,
        metavar="FILE",
        help="config with the settings of models, datasets and strategies (default: "
        "config/config.yaml)",
    )


def _add_for_workflow(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("for the workflow").add_argument
    add(
        "--settings",
        metavar="JSON",
        help="settings of the run, as in metrics.json, instead of the flags above",
    )
    add("--job", type=Path, metavar="FILE", help="file with such flags for each of several runs")
    add("--data", type=Path, metavar="DIR", help="folder of the prepared dataset")
    add("--fold-of", type=Path, metavar="FILE", help="file with the fold of each sample")
    add("--recipe", type=Path, metavar="FILE", help="file with the measured values of `auto`")
    add("--checkpoints", type=Path, metavar="DIR", help="folder for checkpoints")
    add(
        "--cores",
        type=int,
        metavar="N",
        help="number of cores of this run on each node; an error if it needs more",
    )
    add("--oversubscribe", action="store_true", help="run even with fewer cores than needed")
    add("--cores-of-call", type=int, metavar="N", help="number of cores that all runs share")
    add("--exclusive", action="store_true", help="record that no other run uses the machine")
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for the results (default: in results/by_hand)",
    )
    add("--mark", action="append", default=[], metavar="FILE", help="file to write at the end")
    add("--curves", action="store_true", help="score the test fold after every epoch")
    add("--no-pinning", action="store_true", help="let the system move processes between cores")
    add(
        "--timeout",
        type=float,
        default=schema.defaults()["timeout"],
        metavar="SECONDS",
        help="end the run if no rank makes progress for this long (default: %(default)g)",
    )
    add(
        "--checkpoint-minutes",
        type=float,
        default=schema.defaults()["checkpoint_minutes"],
        metavar="N",
        help="save a checkpoint after this many minutes, even within an epoch (default: "
        "%(default)g)",
    )


def _names(known: Iterable[str]) -> str:
    return ", ".join(known)


def run_of(flags: argparse.Namespace) -> Run:
    """Return the Run that the flags describe, checked like a config with that one run.

    Raises:
        ValueError: something is unknown or does not fit; one line per finding.
        OSError: the config cannot be read.
    """
    if flags.settings:
        try:
            return Run.from_json(flags.settings)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"--settings: not the settings of a run: {error}") from None
    # Imported here, because the workflow's runs are already checked and do not need it.
    from allcores_study import yaml_files
    from allcores_study.config import checks, sweeps

    config = yaml_files.read(flags.config)
    entries = schema.entries(config, "models")
    if problems := sweeps.problems(entries):
        raise ValueError("\n".join(checks.located(problems, yaml_files.places([flags.config])[0])))
    config = sweeps.expanded(config | {"models": entries, "studies": {}})
    candidates = sweeps.candidates(config, flags.model)
    if "search" in config.get(schema.SWEPT, {}).get((candidates or [flags.model])[0], {}):
        raise ValueError(
            f"--model: {flags.model} is searched in {flags.config}, where each fold suggests other "
            "values; expected an entry without `search`, such as one with values of candidates.csv"
        )
    if candidates:
        raise ValueError(
            f"--model: {flags.model} is swept over in {flags.config}; expected one of "
            f"{', '.join(candidates)}"
        )
    label = flags.model.replace(":", ".")
    config = _with_run(config, label, flags)
    findings = checks.findings(config, [flags.config])
    runs = [] if findings else grid.expand(config).of("by_hand")
    if runs and runs[0].workers != flags.workers:
        findings = [f"--workers: found {flags.workers}; {flags.strategy} takes only one"]
    if findings:
        raise ValueError("\n".join(findings))
    settings = {key: value for key, value in config["models"][label].items() if key != "import"}
    print(f"{flags.model}: {json.dumps(settings)[1:-1]}", flush=True)
    return runs[0]


def _with_run(config: dict[str, Any], label: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Return the config with a study that contains only this run.

    Args:
        label: label of its model.
    """
    entry = config["models"].get(label, {})
    if ":" in flags.model:
        entry["import"] = flags.model
    if not component.is_estimator(entry):
        entry = DEFAULT_ENTRY | entry
    if flags.epochs is not None:
        entry["epochs"] = flags.epochs
    study = {
        "datasets": [flags.dataset],
        "folds": FOLDS,
        "models": [label],
        "strategies": [flags.strategy],
        "workers": [flags.workers],
    }
    others = {key: value for key, value in config.items() if key in schema.properties()}
    return others | {"models": {label: entry}, "studies": {"by_hand": study}}
