"""How a study was done, as a table of facts. No torch."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import allcores
from allcores_study import programs
from allcores_study.analysis import tidy
from allcores_study.analysis.selection import SWEPT_COLUMN
from allcores_study.analysis.wording import comma_separated, count
from allcores_study.config import grid, registry

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts
    from allcores_study.config.run import Run
    from allcores_study.data.facts import Facts

MOST_CLASSES = 12  # in a list
STANDARDISED = "standardised with mean and standard deviation of the training set"
REFERENCE = "corrected resampled t-test (Nadeau and Bengio, Machine Learning 52, 2003)"


def line(runs: pd.DataFrame, infos: dict[str, Facts]) -> str:
    """Return what was trained, where and when, in a line.

    Args:
        runs: a row per run.
        infos: label of a dataset -> its Facts.
    """
    data = [f"{label} ({info.count:,} samples)" for label, info in infos.items()]
    splits, seeds = runs["split"].nunique(), runs["seed"].nunique()
    scored_on = "the test set" if (runs["split"] == "test").all() else count(splits, "fold")
    machines = runs.drop_duplicates(["machine_host", "machine_processor"])
    cores = [
        f"{row['machine_processor']}, {count(row['machine_cores_allowed'], 'core')}"
        for _, row in machines.iterrows()
    ]
    day = time.strftime("%Y-%m-%d", time.gmtime(runs["started"].min()))
    parts = [
        comma_separated(data),
        f"{scored_on} x {count(seeds, 'seed')}: {count(len(runs), 'run')}",
        " and ".join(dict.fromkeys(cores)),
        f"{day}, allcores {version()}",
    ]
    return "; ".join(filter(None, parts))


def table(
    frames: dict[str, pd.DataFrame],
    runs: list[Run],
    facts: StudyFacts,
    infos: dict[str, Facts],
) -> list[tuple[str, str]]:
    """Return [(name of a fact, the fact), ...] on data, training, comparison, timing and machine.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        runs: of the study.
        facts: about the study.
        infos: label of a dataset -> its Facts.
    """
    rows = frames["runs"]
    networks = [run for run in runs if not run.is_estimator]
    return [
        *((f"data: {label}", _of_data(info)) for label, info in infos.items()),
        *_splits(rows, runs, facts, infos),
        *_models(rows, runs),
        *_of_networks(networks),
        ("seeds", f"{comma_separated(map(str, sorted(rows['seed'].unique())))}"),
        ("runs", f"{len(rows):,}"),
        *_selections(frames["candidates"], rows, runs, facts),
        ("metrics", comma_separated(facts.metrics)),
        *_comparison(frames, facts),
        *_timing(rows, "speed_table" in frames),
        *_machines(rows),
    ]


def _splits(
    rows: pd.DataFrame, runs: list[Run], facts: StudyFacts, infos: dict[str, Facts]
) -> Iterator[tuple[str, str]]:
    """Yield how the samples of each dataset are split."""
    entries = {run.dataset.label: run.dataset for run in runs}
    for label, of_dataset in rows.groupby("dataset", sort=False):
        options = entries[label].options if label in entries else {}
        own = label in infos and infos[label].own_folds is not None
        facts_of_one = [_split(of_dataset, facts, options.get("groups"), own)]
        if options.get("missing") == "mean":
            facts_of_one.append("missing numbers: mean of the training set")
            facts_of_one.append("missing texts: no category")
        yield f"split: {label}", "; ".join(facts_of_one)


def _models(rows: pd.DataFrame, runs: list[Run]) -> Iterator[tuple[str, str]]:
    """Yield each model with its options, training and number of parameters."""
    texts: dict[str, dict[str, None]] = {}  # several, if folds have chosen otherwise
    for run in runs:
        texts.setdefault(run.model.label, {})[of_model(run)] = None
    # Rows of chosen candidates have the name of the sweep, so labels come from the runs. That needs
    # a row for each run: some may have failed.
    is_whole = len(rows) == len(runs)
    labels = [run.model.label for run in runs] if is_whole else rows["model"]
    counts = rows["parameters"].groupby(np.array(labels)).agg(["min", "max"])
    for label, of_label in texts.items():
        yield f"model: {label}", " or ".join(of_label) + _of_parameters(counts, label)


def _of_networks(networks: list[Run]) -> Iterator[tuple[str, str]]:
    """Yield the schedules and setups, if there are networks."""
    schedules = dict.fromkeys(_named(run.schedule.label, run.schedule.options) for run in networks)
    setups = dict.fromkeys(map(_setup, networks))
    if networks:
        yield "learning-rate schedules", "; ".join(schedules)
        yield "setups", "; ".join(setups)
    if len(setups) > 1:
        yield "equal in all setups", "initial weights, samples and their order, global batches"


def _of_parameters(counts: pd.DataFrame, label: str) -> str:
    """Return how many parameters a model has, in words; "": unknown.

    Args:
        counts: model -> "min" and "max" of its runs.
    """
    if label not in counts.index or pd.isna(counts["max"][label]):
        return ""
    return f", {_range(counts.loc[label].astype(int))} parameters"


def _of_data(facts: Facts) -> str:
    """Describe the samples of a dataset and how networks get them."""
    samples, shape, columns = facts.count, facts.shape, facts.columns or []
    kinds = [column["category"] is not None for column in columns]
    names = {column["name"] for column in columns if column["category"] is not None}
    if kinds:
        parts = [count(kinds.count(False), "number")] if False in kinds else []
        parts += [f"{count(len(names), 'column')} of categories, one-hot encoded"] if names else []
        inputs = f"{samples:,} rows of {' and '.join(parts)}"
    elif vocabulary := facts.vocabulary:
        inputs = f"{samples:,} sequences of up to {shape[0]:,} {vocabulary.kind}"
        if vocabulary.words:
            known = "the most frequent in the training set are known"
            inputs += f", of which {known}, {vocabulary.most:,} at most"
    else:
        inputs = f"{samples:,} samples of {' x '.join(map(str, shape))} {facts.dtype} values"
    how = f", {'channels' if len(shape) > 1 else 'numbers'} {STANDARDISED}"
    if facts.vocabulary or (kinds and False not in kinds):
        how = ""  # without numbers, nothing can be scaled
    groups = f"; {count(facts.groups, 'group')}" if facts.groups else ""
    return inputs + how + groups + _of_targets(facts)


def _of_targets(facts: Facts) -> str:
    """Describe the targets of a dataset."""
    task = registry.tasks()[facts.task].constants
    if not facts.classes:
        names, predicted = facts.names, task.get("PREDICTED", "{names} are predicted")
        is_told = bool(names) or "{names}" not in predicted
        said = f"; {predicted.format(names=comma_separated(names or []))}" * is_told
        return said + f"; targets {STANDARDISED} for training" * task["IS_SCALED"]
    counts = facts.class_counts or []
    listed = [f"{name}: {number:,}" for name, number in zip(facts.classes, counts, strict=True)]
    if len(listed) > MOST_CLASSES:
        listed = [f"{min(counts):,} to {max(counts):,} samples each"]
    of_training = ", in the training set" if facts.test else ""
    return f"; {len(counts)} classes ({comma_separated(listed)}{of_training})"


def of_model(run: Run) -> str:
    """Describe the model of a run and how it is trained."""
    augmentation = [f"random crops after padding by {run.crop}"] if run.crop else []
    augmentation += ["random flips"] if run.flip else []
    if run.augmentation:
        own = _named(run.augmentation.name.replace(":", "."), run.augmentation.options)
        augmentation.append(f"samples augmented by {own}")
    options = [f"{key} {value}" for key, value in run.model.options.items()]
    name = run.model.name.replace(":", ".")
    if run.is_estimator:
        return ", ".join([name, *options])
    assert run.optimizer is not None  # a network has one
    parts = [
        name,
        *options,
        _named(run.optimizer.name, run.optimizer.options),
        f"batches of {run.batch_size}",
        count(run.epochs, "epoch"),
        _named(run.loss.name, run.loss.options),
        *augmentation,
        *_additions(run),
    ]
    return ", ".join(parts)


def _named(name: str, options: dict[str, Any]) -> str:
    """Return a name with its options, in words."""
    words = {"lr": "learning rate", "weight": "class weights"}
    options = [f"{words.get(key, key.replace('_', ' '))} {value}" for key, value in options.items()]  # type: ignore[assignment]
    return f"{name} with {comma_separated(options)}" if options else name


def _additions(run: Run) -> Iterator[str]:
    if run.clip_norm is not None:
        yield f"gradients clipped at a norm of {run.clip_norm:g}"
    if run.ema is not None:
        yield f"an exponential moving average of the weights with decay {run.ema:g}"
    if run.validation is not None:
        part = f"{100 * run.validation:g} % of the training set, held back for this"
        yield f"the weights after the epoch with the lowest loss on {part}"
    if run.patience is not None:
        yield f"stopped after {count(run.patience, 'epoch')} without improvement"


def _setup(run: Run) -> str:
    threads = run.threads_per_worker
    return (
        f"{run.strategy.label} with {count(run.workers, 'worker')}"
        + (f" on {run.nodes} nodes" if run.nodes > 1 else "")
        + (f" and {count(run.servers, 'server')}" if run.servers else "")
        + ("" if threads == 1 else f" of {threads} threads each")
    )


def _split(
    rows: pd.DataFrame, facts: StudyFacts, groups: str | None = None, are_own: bool = False
) -> str:
    """Return how the samples are split, in words.

    Args:
        rows: a row per run.
        facts: about the study.
        groups: name of the column with the groups.
        are_own: whether the data bring their folds.
    """
    trained, scored = _range(rows["train_samples"]), _range(rows["held_out_samples"])
    split = rows["split"].iloc[0]
    folds = split.rpartition(" ")[2]
    if split == "test":
        how = "the dataset's own test set"
    elif are_own:
        how = f"{folds} folds that the data bring"
    elif rows["ordered"].any():
        how = f"{folds} folds, each scored after training on the earlier ones"
    else:
        is_grouped = rows["grouped"].any()
        how = f"{'' if is_grouped else facts.stratified}{folds}-fold cross-validation"
        if is_grouped:
            how += f", groups{f' ({groups})' if groups else ''} held out as a whole"
    return f"{how}; {trained} training samples, {scored} test samples"


def _range(values: pd.Series) -> str:
    least, most = values.min(), values.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _selections(
    candidates: pd.DataFrame, rows: pd.DataFrame, runs: list[Run], facts: StudyFacts
) -> Iterator[tuple[str, str]]:
    """Yield how candidates were chosen within each fold.

    Args:
        candidates: a row per candidate.
        rows: a row per run.
        runs: of the study.
        facts: about the study.
    """
    chosen = candidates[candidates["chosen"].notna()]
    for (model, dataset), of_model in chosen.groupby(["model", "dataset"], sort=False):
        swept = [name for name in of_model if name.startswith(SWEPT_COLUMN)]
        keys = [
            name.removeprefix(SWEPT_COLUMN)
            for name in swept
            if of_model[name].nunique(dropna=False) > 1
        ]
        folds = f"{of_model['inner_folds'].iloc[0]:.0f}"
        is_ordered = rows.loc[rows["dataset"] == dataset, "ordered"].any()
        inner = f"{folds} inner folds" if is_ordered else f"{folds}-fold cross-validation"
        inner += ", each scored after training on the earlier ones" * bool(is_ordered)
        of_candidates = [run for run in runs if run.model.label == model]
        is_held_back = any(run.validation for run in of_candidates)
        number = of_model.groupby(list(tidy.RUN), dropna=False).size().max()
        drawn = dict(facts.drawn).get(model, "")
        parts = [
            f"{comma_separated(keys)}: {count(number, 'candidate')}{drawn}",
            f"the best mean {facts.metric} in {inner} of the training set",
            f"then trained on all of it{' except its validation part' * is_held_back}",
        ]
        where = f" on {dataset}" if chosen["dataset"].nunique() > 1 else ""
        yield f"choice: {model}{where}", "; ".join(parts)


def _comparison(frames: dict[str, pd.DataFrame], facts: StudyFacts) -> Iterator[tuple[str, str]]:
    compared = []
    if frames["models_table"]["pairs"].notna().any():
        compared.append("each model and schedule with the best one")
    if frames["accuracy_table"]["pairs"].notna().any():
        compared.append(f"each setup with {facts.baseline}")
    if compared:
        yield f"{facts.metric} compared", "; ".join(compared)
        yield "test", f"{REFERENCE}, on runs paired by fold and seed, with J - 1 degrees of freedom"
        yield "correction", "Holm's, for p values, not for intervals"
        yield "intervals", f"95 %, corrected for shared training samples{_scale(facts.metric)}"


def _scale(metric: Metric) -> str:
    """Return the scale on which intervals of scores are symmetric; see comparison.within()."""
    if metric.bounds == (None, None):
        return ""
    return f", on a {'logit' if None not in metric.bounds else 'logarithmic'} scale"


def _timing(rows: pd.DataFrame, is_timed: bool) -> Iterator[tuple[str, str]]:
    alone = rows["exclusive"].astype(bool)
    yield "times", "training only, without start-up, evaluation and checkpoints"
    if is_timed:
        yield "speeds", "median over the epochs after the first, and over runs"
    beside = "each run alone" if alone.all() else "runs packed onto the cores, side by side"
    parts = ["some runs alone, the others side by side" if 0 < alone.sum() < len(rows) else beside]
    disturbed = rows["contended"].astype(bool).sum()
    if disturbed:
        parts.append(f"other processes competed for cores in {disturbed} of {len(rows)}")
    if rows["pinned"].astype(bool).all():
        parts.append("each process pinned to its own cores")
    yield "machine's use", "; ".join(parts)
    networks = rows[rows["schedule"] != grid.NO_SCHEDULE.label]
    computed = networks[["model", "precision", "memory_format", "threads_used"]].drop_duplicates()
    if len(computed):
        listed = "; ".join(map(_computed_in, computed.groupby("model", sort=False)))
        yield "precision, memory format", listed


def _machines(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield machines, software and dates."""
    machines = rows.drop_duplicates(["machine_host", "machine_processor"])
    for _, row in machines.iterrows():
        yield (
            "machine",
            f"{row['machine_processor']}, {count(row['machine_cores_allowed'], 'core')}, "
            f"{row['machine_memory_bytes'] / 2**30:.0f} GiB, {row['machine_vector_instructions']}; "
            f"{row['machine_system']}",
        )
    versions = rows.drop_duplicates(["machine_python", "machine_torch", "machine_numpy"])
    for _, row in versions.iterrows():
        yield (
            "software",
            f"Python {row['machine_python']}, torch {row['machine_torch']}, "
            f"numpy {row['machine_numpy']}, allcores {version()}",
        )
    days = [
        time.strftime("%Y-%m-%d", time.gmtime(rows["started"].agg(end))) for end in ("min", "max")
    ]
    yield "trained", " to ".join(dict.fromkeys(days))


def _computed_in(group: tuple[str, pd.DataFrame]) -> str:
    model, rows = group
    pairs = zip(rows["precision"], rows["memory_format"].str.replace("_", " "), strict=True)
    formats = dict.fromkeys(map(comma_separated, pairs))
    return f"{' or '.join(formats)} ({model})"


def version() -> str:
    """Return the version, and the commit if this is a clone: "0.1.0 (commit 1a2b3c4)"."""
    commit = _commit()
    return f"{allcores.__version__} (commit {commit})" if commit else allcores.__version__


def _commit() -> str:
    """Return the commit, with -dirty if files have changed since; "": no clone, or no git."""
    if not (programs.PROJECT / ".git").exists() or shutil.which("git") is None:
        return ""
    command: list[str | Path] = ["git", "-C", programs.PROJECT, "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
