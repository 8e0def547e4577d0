"""Check each study of a config: its labels, files, keys, and the cores that it asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.loop import named
from allcores_study import programs
from allcores_study.config import component, fit, grid, registry, settings, sweeps
from allcores_study.config.options import choices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from allcores_study.yaml_files import Keys, Problem


SECTIONS = {
    "datasets": registry.datasets,
    "schedules": registry.schedules,
    "strategies": registry.strategies,
}
SINGULAR = {
    "datasets": "dataset",
    "models": "model",
    "schedules": "schedule",
    "strategies": "strategy",
}


def unknown_labels(config: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each unknown label in a study, and each unreadable file."""
    for name, study in config["studies"].items():
        for section, singular in SINGULAR.items():
            built_in = SECTIONS.get(section, dict)()
            known = [*config.get(section, {}), *built_in]
            for position, label in enumerate(study[section]):
                if label in built_in and label not in config.get(section, {}):
                    # Without an entry: some need options.
                    yield from built_in[label].problems(("studies", name, section, position), {})
                if label not in known:
                    hint = ""
                    if section == "models" and label in registry.models():
                        hint = "; give it an entry in `models`, with its batch_size, epochs and "
                        hint += "optimizer"
                    text = f"unknown {singular} {label!r}; {choices(label, known)}{hint}"
                    yield ("studies", name, section, position), text
        for label in study["datasets"]:
            if grid.labelled(config, "datasets", label).name in registry.datasets():
                yield from _unreadable_files(config, label)


def _unreadable_files(config: dict[str, Any], label: str) -> Iterator[Problem]:
    for key, path in registry.paths(grid.labelled(config, "datasets", label)).items():
        if problem := _unreadable(path):
            yield ("datasets", label, key), problem


def of_studies(
    config: dict[str, Any], cores: int | None, nodes: int | None, flag: Callable[[int], str]
) -> Iterator[Problem]:
    """Yield problems for what does not go together in a study whose labels are all known."""
    for name, study in config["studies"].items():
        path = ("studies", name)
        yield from _check_keys(config, path, study)
        yield from _check_batches(config, path, study)
        yield from _check_optimizers(config, path, study)
        yield from _check_estimators(config, path, study)
        yield from fit.problems(config, path, study)
        yield from _check_nodes(config, path, study, nodes or float("inf"))
        yield from _check_cores(config, path, study, cores or float("inf"), flag)


def _unreadable(path: str) -> str | None:
    """Return why a file or folder cannot be read; None: it can."""
    try:
        if not Path(path).exists():
            return f"{path} does not exist (seen from {Path.cwd()})"
    except (OSError, ValueError) as error:  # a name that is too long, or has a null byte
        return str(error)
    return None if os.access(path, os.R_OK) else f"{path} cannot be read"


def _check_batches(config: dict[str, Any], path: Keys, study: dict[str, Any]) -> Iterator[Problem]:
    """Check that every worker gets a part of every full batch."""
    most = max((workers for _, _, workers, _, _ in grid.layouts(config, study)), default=1)
    for position, label in enumerate(study["models"]):
        batch_size = config["models"][label].get("batch_size")
        if component.is_estimator(config["models"][label]):
            continue  # such a key is its own
        if batch_size is not None and batch_size < most:
            yield (
                (*path, "models", position),
                f"the batch of {batch_size} of {label!r} cannot be shared by {most} "
                f"workers; expected a batch_size of at least {most}",
            )


def _check_optimizers(
    config: dict[str, Any], path: Keys, study: dict[str, Any]
) -> Iterator[Problem]:
    """Check that strategies that update slices of one vector get optimizers that need no shapes."""
    for position, label in enumerate(study["strategies"]):
        strategy = registry.strategies()[grid.labelled(config, "strategies", label).name]
        if not strategy.constants.get("element_wise"):
            continue
        for model in study["models"]:
            if component.is_estimator(config["models"][model]):
                continue
            optimizer = config["models"][model].get("optimizer", {}).get("name")
            name = registry.canonical(optimizer, registry.optimizers())
            if name in named.WHOLE_TENSOR_OPTIMIZERS:
                yield (
                    (*path, "strategies", position),
                    f"{label} updates each weight separately, which {name} of {model!r} does not; "
                    "choose another strategy or another optimizer",
                )


def _check_estimators(
    config: dict[str, Any], path: Keys, study: dict[str, Any]
) -> Iterator[Problem]:
    """Check that estimators, which are one process, are compared with networks trained by one."""
    models = study["models"]
    labels = [label for label in models if component.is_estimator(config["models"][label])]
    if not labels:
        return
    strategies = study["strategies"]
    baseline = study.get("baseline", strategies[0])
    if baseline != grid.SERIAL.label:
        yield (
            (*path, "strategies"),
            f"the estimator {labels[0]} is trained by one process, so it is compared with serial, "
            f"not {baseline}; list serial first, or set `baseline: serial`",
        )


def _check_nodes(
    config: dict[str, Any], path: Keys, study: dict[str, Any], available: float
) -> Iterator[Problem]:
    """Check that there are enough nodes, and that the strategies can use several."""
    most = max((nodes for _, nodes, *_ in grid.layouts(config, study)), default=1)
    if most > available:
        yield (
            (*path, "nodes"),
            f"found {most}; this invocation has {available}; use a cluster, with "
            f"`{programs.snakemake()} --profile slurm`",
        )
    for position, label in enumerate(study["strategies"]):
        strategy = registry.strategies()[grid.labelled(config, "strategies", label).name]
        if most > 1 and strategy.constants.get("one_node"):
            yield (
                (*path, "strategies", position),
                f"the workers of {label} share memory, so they need one node; found {most} nodes",
            )


def _check_cores(
    config: dict[str, Any],
    path: Keys,
    study: dict[str, Any],
    cores: float,
    flag: Callable[[int], str],
) -> Iterator[Problem]:
    """Check that runs fit on the cores: else Snakemake would silently cut their threads."""
    key = "cores" if "cores" in study else "workers"
    too_large: dict[str, tuple[int, str]] = {}  # strategy -> its widest run: cores, in words
    for strategy, nodes, workers, servers, threads in grid.layouts(config, study):
        needed = -(-(workers + servers) // nodes) * threads
        of_servers = f"{servers} server{'s' * (servers > 1)}"
        if workers < 1:
            yield (
                (*path, key),
                f"{strategy.label} has {of_servers}, which leaves no core for a worker; "
                f"expected at least {servers + 1}",
            )
        elif needed > cores and not study["oversubscribe"]:
            text = (
                f"{strategy.label} with {workers} workers{f' and {of_servers}' if servers else ''} "
                f"x {threads} thread{'s' * (threads > 1)} needs {needed} "
                f"cores{f' on each of {nodes} nodes' if nodes > 1 else ''}; this "
                f"invocation has {cores}; give it {flag(needed)}, or use fewer workers or threads"
            )
            known = too_large.get(strategy.label, (0, ""))
            too_large[strategy.label] = max(known, (needed, text))
    for _, text in too_large.values():
        yield (*path, key), text


def _check_keys(config: dict[str, Any], path: Keys, study: dict[str, Any]) -> Iterator[Problem]:
    """Check the keys of a study that need or exclude each other."""
    baseline = study.get("baseline")
    if baseline is not None and baseline not in study["strategies"]:
        yield (*path, "baseline"), f"found {baseline!r}; {choices(baseline, study['strategies'])}"
    if "cores" in study:
        for key in {"workers", "threads_per_worker", "nodes"} & set(
            settings.without_defaults(study)
        ):
            yield (*path, key), "conflicts with `cores`, which decides it"
    if study["oversubscribe"] and not study["exclusive"]:
        yield (*path, "oversubscribe"), "needs `exclusive: true`, or it would slow down other runs"
    if "target_accuracy" in study and not study["curves"]:
        yield (*path, "target_accuracy"), "needs `curves: true`, which scores every epoch"
    others = [name for name in config["studies"] if name != path[-1]]
    yield from _check_against(config, path, study, others)
    for position, reference in enumerate(study.get("references", ())):
        given = {"seconds", "images"} & set(reference)
        if len(given) == 1 or not (given or "score" in reference):
            yield (*path, "references", position), "lacks seconds and images, or a score"
        model = reference["model"]
        models = study["models"]
        if "select" in study:  # its tables are about the swept model, not about each candidate
            models = list(dict.fromkeys(sweeps.family_of(config, label) for label in models))
        if model not in models:
            hint = choices(model, models)
            yield (*path, "references", position, "model"), f"found {model!r}; {hint}"


def _check_against(
    config: dict[str, Any], path: Keys, study: dict[str, Any], others: Collection[str]
) -> Iterator[Problem]:
    """Check that `against` names an exclusive study on the same data, models and folds."""
    if "against" not in study:
        return
    against = study["against"]
    if against not in others:
        yield (*path, "against"), f"found {against!r}; {choices(against, others)}"
        return
    other = config["studies"][against]
    if "select" in other:
        yield (*path, "against"), f"{against!r} has `select`, which chooses its runs"
    if not other["exclusive"]:
        yield (*path, "against"), f"{against!r} needs `exclusive: true`, one run at a time"
    for key in ("datasets", "models", "schedules", "strategies", "train_sizes", "seeds"):
        if not set(study[key]) & set(other[key]):
            yield (*path, "against"), f"{against!r} has no {key} in common with this study"
    if study["exclusive"]:
        yield (*path, "against"), "conflicts with `exclusive: true`: its runs have to be packed"
    layouts = [{repr(layout) for layout in grid.layouts(config, side)} for side in (study, other)]
    if layouts[0] & layouts[1]:
        yield (
            (*path, "against"),
            f"{against!r} has a strategy with the same workers and threads as this study; the same "
            "runs cannot be both packed and exclusive",
        )
    for name, side in ((path[-1], study), (against, other)):
        labels = [strategy.label for strategy, *_ in grid.layouts(config, side)]
        for label in sorted({label for label in labels if labels.count(label) > 1}):
            yield (
                (*path, "against"),
                f"{name!r} has {label!r} with several workers or threads; expected one",
            )
    if study["folds"] != other["folds"]:
        yield (*path, "against"), f"{against!r} and this study have different folds"
