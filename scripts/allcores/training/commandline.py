"""The flags of scripts/train.py, and the Run that they describe."""

import argparse
import functools
import json
from pathlib import Path

import yaml

from allcores.study import grid, registry, schema
from allcores.study.run import AUTO, Run

CONFIG = registry.LIBRARY.parents[1] / "config" / "config.yaml"
# For a model without an entry in the config.
DEFAULT_ENTRY = {"batch_size": 64, "epochs": 5, "optimizer": {"name": "adam", "lr": 0.001}}


def parse(arguments, description):
    """The parsed flags, an argparse.Namespace.

    Raises:
        SystemExit: help was asked for or a flag is wrong; argparse has printed which.
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
def _parser(description):
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for add_group in (_add_what, _add_how, _add_cores, _add_where, _add_for_workflow):
        add_group(parser)
    return parser


def _add_what(parser):
    add = parser.add_argument_group("what to train").add_argument
    add(
        "--model",
        metavar="NAME",
        help=f"{_names(registry.models())}; package.module:Net; or a label in the config",
    )
    _add_options(add, "--option", "the model, such as width=0.5")
    add(
        "--dataset",
        default="digits",
        metavar="NAME",
        help=f"{_names(registry.datasets())}; or a label in the config (default: digits)",
    )
    _add_options(add, "--dataset-option", "the dataset, such as path=my_arrays.npz")
    add(
        "--folds",
        type=int,
        default=5,
        metavar="K",
        help="hold out one of K folds (default: 5); 0: the dataset's own test set",
    )
    add("--fold", type=int, default=0, metavar="I", help="which fold, from 0 (default: 0)")
    add("--train-size", type=int, metavar="N", help="train on N samples only")
    add(
        "--config",
        type=Path,
        default=CONFIG,
        metavar="FILE",
        help="where labels are looked up (default: config/config.yaml)",
    )


def _add_how(parser):
    add = parser.add_argument_group("how (default: the model's entry in the config)").add_argument
    add("--epochs", type=int, metavar="N")
    add("--batch-size", type=int, metavar="N", help="samples per step, all workers together")
    add("--optimizer", metavar="NAME", help="any of torch.optim")
    add("--lr", type=float, metavar="RATE", help="learning rate where the schedule starts")
    add(
        "--schedule",
        default="constant",
        metavar="NAME",
        help=f"{_names(registry.schedules())} (default: constant)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="decides folds, initial weights, order, augmentation (default: 0)",
    )
    for flag, values in (
        ("--precision", "fp32, bf16"),
        ("--memory-format", "contiguous, channels_last"),
    ):
        add(flag, metavar="NAME", help=f"{values}, or auto: the fastest one")
    add("--curves", action="store_true", help="score the held-out part after every epoch")


def _add_cores(parser):
    add = parser.add_argument_group("on which cores").add_argument
    add(
        "--strategy",
        default="serial",
        metavar="NAME",
        help=f"{_names(registry.strategies())}; or a label in the config (default: serial)",
    )
    _add_options(add, "--strategy-option", "the strategy, such as servers=2")
    add("--workers", type=int, default=1, metavar="N", help="processes that train (default: 1)")
    add(
        "--threads",
        type=lambda text: text if text == AUTO else int(text),
        default=1,
        metavar="N",
        help="threads per process, or auto: as many as are fastest (default: 1)",
    )
    add(
        "--no-pinning",
        action="store_true",
        help="let the system move processes from core to core",
    )
    add(
        "--timeout",
        type=float,
        default=schema.defaults()["timeout"],
        metavar="SECONDS",
        help="end a run that makes no progress for this long (default: %(default)g)",
    )
    add(
        "--checkpoint-minutes",
        type=float,
        default=schema.defaults()["checkpoint_minutes"],
        metavar="N",
        help="save a checkpoint after so many minutes, in addition to epochs (default: "
        "%(default)g)",
    )


def _add_where(parser):
    add = parser.add_argument_group("where").add_argument
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for the results (default: in results/by_hand)",
    )
    add("--tensorboard", action="store_true", help="write event files for TensorBoard there, too")


def _add_for_workflow(parser):
    add = parser.add_argument_group("how the workflow calls it").add_argument
    add(
        "--settings",
        metavar="JSON",
        help="the run's settings, as in metrics.json; of the flags above only --curves, "
        "--no-pinning, --timeout, --checkpoint-minutes, --output and --tensorboard count, too",
    )
    add("--job", type=Path, metavar="FILE", help="several runs: for each, flags such as these")
    add("--data", type=Path, metavar="DIR", help="the prepared dataset")
    add("--fold-of", type=Path, metavar="FILE", help="the fold of each sample")
    add("--recipe", type=Path, metavar="FILE", help="the measured values of `auto`")
    add("--checkpoints", type=Path, metavar="DIR", help="folder for checkpoints")
    add(
        "--cores",
        type=int,
        metavar="N",
        help="the cores that this run was given on each node; it refuses fewer than it needs",
    )
    add("--scratch", metavar="DIR", help="copy the dataset there, and read the copy")
    add("--interface", metavar="NAME", help="the network interface between the nodes of a run")
    add("--oversubscribe", action="store_true", help="run even with fewer cores than needed")
    add("--cores-of-call", type=int, metavar="N", help="recorded: the cores that all runs share")
    add("--exclusive", action="store_true", help="record that nothing else runs meanwhile")


def _names(known):
    return ", ".join(known)


def _add_options(add, flag, owner):
    add(
        flag,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"an option of {owner}; may be repeated",
    )


def run_of(flags):
    """The Run that the flags describe, checked like a config with that one run.

    Raises:
        ValueError: something is unknown or does not fit; one line per finding.
        OSError: the config cannot be read.
    """
    if flags.settings:
        try:
            return Run.from_json(flags.settings)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"--settings: not the settings of a run: {error}") from None
    # Imported here, as the runs of the workflow are checked before and do not need it.
    from allcores.study import checks, sweeps, yamlfile

    config, problems = sweeps.resolved(yamlfile.read(flags.config))
    problems = problems or schema.violations(config)
    if problems:
        raise ValueError("\n".join(checks.located(problems, yamlfile.places([flags.config])[0])))
    candidates = sweeps.candidates(config, flags.model)
    if candidates:
        raise ValueError(
            f"--model: {flags.model} is swept over in {flags.config}; expected one of "
            f"{', '.join(candidates)}"
        )
    label = flags.model.replace(":", ".")
    config["models"] = {label: _entry(flags, label, checks.mapping(config.get("models")))}
    for section, study, options in (
        ("datasets", flags.dataset, flags.dataset_option),
        ("strategies", flags.strategy, flags.strategy_option),
    ):
        entries = checks.mapping(config.get(section))
        config[section] = entries | {study: (entries.get(study) or {}) | _options(options)}
    study = {
        "datasets": [flags.dataset],
        "folds": flags.folds or "test",
        "models": [label],
        "schedules": [flags.schedule],
        "strategies": [flags.strategy],
        "workers": [flags.workers],
        "threads_per_worker": [flags.threads],
        "seeds": [flags.seed],
        "train_sizes": ["all" if flags.train_size is None else flags.train_size],
    }
    config["studies"] = {"by_hand": study}
    problems = checks.findings(config)
    runs = [] if problems else grid.expand(config).of("by_hand")
    if runs and runs[0].workers != flags.workers:
        problems = [f"--workers: found {flags.workers}; {flags.strategy} takes only one"]
    if not problems and not 0 <= flags.fold < len(runs):
        problems = [f"--fold: found {flags.fold}; expected 0..{len(runs) - 1}"]
    if problems:
        raise ValueError("\n".join(problems))
    settings = {key: value for key, value in config["models"][label].items() if key != "import"}
    print(f"{flags.model}: {json.dumps(settings)[1:-1]}", flush=True)
    return runs[flags.fold]


def _entry(flags, label, models):
    """The model's entry in the config, overridden by the flags."""
    entry = DEFAULT_ENTRY | (models.get(label) or {})
    if ":" in flags.model:
        entry["import"] = flags.model
    for key in ("epochs", "batch_size", "precision", "memory_format"):
        if getattr(flags, key) is not None:
            entry[key] = getattr(flags, key)
    if flags.optimizer:  # the config's options are for another optimizer
        entry["optimizer"] = {"name": flags.optimizer, "lr": entry["optimizer"]["lr"]}
    if flags.lr is not None:
        entry["optimizer"] = entry["optimizer"] | {"lr": flags.lr}
    return entry | _options(flags.option)


def _options(texts):
    """KEY=VALUE texts as a dict, with values as YAML reads them."""
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"found {text!r}; expected KEY=VALUE")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"found {text!r}; its value is no YAML") from None
    return options
