"""Check that splits, losses and augmentation of a study fit its datasets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from allcores_study.config import component, grid, registry, scoring, settings
from allcores_study.config.options import choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allcores_study.config.candidates import Selection
    from allcores_study.config.component import Component
    from allcores_study.yaml_files import Keys, Problem


def problems(config: dict[str, Any], path: Keys, study: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for everything in a study that does not fit its datasets."""
    yield from _check_tables(config, study)
    yield from _check_metrics(config, path, study)
    yield from _check_losses(config, study)
    yield from _check_augmentation(config, study)
    yield from _check_splits(config, path, study)
    yield from _check_validation(config, study)
    yield from _check_selection(config, path, study)


def _check_tables(config: dict[str, Any], study: dict[str, Any]) -> Iterator[Problem]:
    """Check the values in files that are small enough to be read now."""
    for label in study["datasets"]:
        try:
            registry.facts(grid.labelled(config, "datasets", label))
        except (ValueError, OSError) as error:
            yield ("datasets", label), str(error)


def task_of_study(config: dict[str, Any], study: dict[str, Any]) -> Component:
    """Return the task of a study's datasets, or of the first if they differ."""
    return registry.task(grid.labelled(config, "datasets", study["datasets"][0]))


OF_METRIC = 3  # values that a metric takes


def _check_metrics(config: dict[str, Any], path: Keys, study: dict[str, Any]) -> Iterator[Problem]:
    """Check that a study has one task, and only metrics that suit it."""
    task, labels = task_of_study(config, study), study["datasets"]
    for label in labels[1:]:
        other = registry.task(grid.labelled(config, "datasets", label))
        if other.name != task.name:
            yield (
                (*path, "datasets"),
                f"the targets of {labels[0]!r} are {task.constants['TARGETS']}, the targets of "
                f"{label!r} are {other.constants['TARGETS']}; put them in separate studies",
            )
            break
        if _count_numbers(config, label) != _count_numbers(config, labels[0]):
            yield (
                (*path, "datasets"),
                f"{label!r} and {labels[0]!r} have different numbers of targets; put them in "
                "separate studies",
            )
            break
    targets = task.constants["TARGETS"]
    if "target_accuracy" in study and "accuracy" not in task.constants["METRICS"]:
        yield (*path, "target_accuracy"), f"needs accuracy; {labels[0]!r} has {targets} as targets"
    yield from _check_references(path, study, task)
    suitable = [name for name, metric in registry.metrics().items() if _suits(metric, task)]
    for position, name in enumerate(study.get("metrics", ())):
        try:
            own = registry.metric(name) if ":" in name else None
        except ValueError as error:
            yield (*path, "metrics", position), str(error)
            continue
        if own and own.positional is not None and own.positional < OF_METRIC:
            yield (
                (*path, "metrics", position),
                f"found {name!r}, which takes {own.positional} values; a metric takes the true and "
                "the predicted values, and the probabilities",
            )
        elif not (_suits(own, task) if own else name in suitable):
            is_own = " (a metric's `targets` name what it is for)" if ":" in name else ""
            yield (
                (*path, "metrics", position),
                f"found {name!r}; the targets are {targets}{is_own}; {choices(name, suitable)}",
            )


def _check_references(path: Keys, study: dict[str, Any], task: Component) -> Iterator[Problem]:
    """Check that published scores are values that the leading metric can have."""
    leading = study.get("metrics", task.constants["METRICS"])[0]
    if ":" in leading or leading not in registry.metrics():
        return
    low, high = registry.metric(leading).constants.get("bounds", (None, None))
    for position, reference in enumerate(study.get("references", ())):
        score = reference.get("score")
        if score is None:
            continue
        if (low is not None and score < low) or (high is not None and score > high):
            ends = [f"from {low:g}"] * (low is not None) + [f"up to {high:g}"] * (high is not None)
            place = (*path, "references", position, "score")
            yield place, f"found {score:g}; expected a value of {leading}, {' '.join(ends)}"


def _count_numbers(config: dict[str, Any], label: str) -> int:
    return scoring.count_numbers(grid.labelled(config, "datasets", label))


def _suits(metric: Component, task: Component) -> bool:
    """Return whether a metric is for the targets of a task."""
    return task.constants["TARGETS"] in metric.constants.get("targets", ("classes",))


def _check_losses(config: dict[str, Any], study: dict[str, Any]) -> Iterator[Problem]:
    """Check that the loss of each model suits the task."""
    task = task_of_study(config, study)
    suitable, weighted = task.constants["LOSSES"], task.constants["WEIGHTED"]
    for label in study["models"]:
        loss = config["models"][label].get("loss", {})
        if "import" in loss or component.is_estimator(config["models"][label]):
            continue
        name = registry.canonical(loss.get("name"), registry.losses())
        place = ("models", label, "loss")
        if name and name not in suitable:
            yield (
                (*place, "name"),
                f"the targets of {study['datasets'][0]!r} are {task.constants['TARGETS']}, which "
                f"{name} does not take; {choices(name, suitable)}",
            )
        elif "weight" in loss and name not in weighted:
            names = {
                name for one in registry.tasks().values() for name in one.constants["WEIGHTED"]
            }
            yield (
                (*place, "weight"),
                f"is an option of {', '.join(sorted(names))}, for classes; {name} does not have it",
            )
        elif "weight" in loss and loss["weight"] != (balanced := task.constants["BALANCED"]):
            yield (*place, "weight"), f"found {loss['weight']!r}; known: {balanced}"


def _check_augmentation(config: dict[str, Any], study: dict[str, Any]) -> Iterator[Problem]:
    """Check that only images are cropped and mirrored."""
    for label in study["datasets"]:
        facts = _facts(config, label)
        if facts is None:
            continue
        if len(facts.shape) == 3:
            yield from _check_crop(config, study, label, facts.shape)
            continue
        for model in study["models"]:
            if component.is_estimator(config["models"][model]):
                continue
            augmentation = config["models"][model].get("augmentation", {})
            for key in {*augmentation} & {*grid.BUILT_IN_AUGMENTATION}:
                yield (
                    ("models", model, "augmentation", key),
                    f"is for images; the samples of {label!r} have the shape {facts.shape}",
                )


def _check_crop(
    config: dict[str, Any], study: dict[str, Any], label: str, shape: tuple[int, ...]
) -> Iterator[Problem]:
    """Check that a window contains a pixel of the image wherever it is cut out."""
    for model in study["models"]:
        if component.is_estimator(config["models"][model]):
            continue
        crop = config["models"][model].get("augmentation", {}).get("crop", 0)
        if crop >= min(shape[1:]):
            yield (
                ("models", model, "augmentation", "crop"),
                f"found {crop}; the images of {label!r} are {shape[1]} x {shape[2]}, so a window "
                "could miss them; use a smaller crop",
            )


def _check_splits(config: dict[str, Any], path: Keys, study: dict[str, Any]) -> Iterator[Problem]:
    """Check that folds, test set and training-set sizes have enough samples."""
    folds = study["folds"]
    for label in study["datasets"]:
        facts = _facts(config, label)
        if facts is None:
            continue
        if folds != "test":
            yield from _check_folds((*path, "folds"), label, facts, folds)
        elif facts.test == 0:
            yield (
                (*path, "folds"),
                f"{label!r} has no test set of its own; expected a number of folds",
            )
            continue
        available = _train_count(facts, folds)
        for position, size in enumerate(study["train_sizes"]):
            if size != "all" and size > available:
                yield (
                    (*path, "train_sizes", position),
                    f"found {size}; {label!r} leaves {samples(available)} to train on; expected at "
                    f"most {available}, or all",
                )


def _train_count(facts: Any, folds: Any) -> int:
    """Estimate how many samples a fold, or the first one in time, leaves to train on."""
    if folds == "test":
        return facts.train
    if facts.own_folds:
        return facts.train - max(facts.own_folds)
    if facts.times:
        return facts.train - folds * (facts.train // (folds + 1))
    return facts.train * (folds - 1) // folds


def _check_validation(config: dict[str, Any], study: dict[str, Any]) -> Iterator[Problem]:
    """Check that even the smallest training set has a validation sample of every class."""
    for label in study["datasets"]:
        facts = _facts(config, label)
        if facts is None:
            continue
        models = [
            one
            for one in study["models"]
            if not component.is_estimator(config["models"][one])
            and config["models"][one].get("validation")
        ]
        sizes = [size for size in study["train_sizes"] if size != "all"]
        for model in models:
            place, part = ("models", model, "validation"), config["models"][model]["validation"]
            is_chosen = model in config.get(settings.SWEPT, {})
            select = study.get("select") if is_chosen else None
            what, left = _fewest(facts, study["folds"], select)
            if what != SAMPLES and left < 2:
                yield (
                    place,
                    f"a fold of {label!r} leaves {_counted(left, what)} to train on; holding a "
                    "part back takes 2",
                )
                continue
            if facts.groups or facts.times or facts.class_counts is None:
                continue
            available = _train_count(facts, study["folds"])
            available -= -(-available // select) if select else 0
            available = min([available, *sizes])
            # Rounded as scikit-learn does.
            if math.ceil(part * available) < facts.outputs:
                yield (
                    place,
                    f"found {part:g}; with {available} samples of {label!r} to train on, that is "
                    f"less than {facts.outputs}, one of each class; expected more",
                )


SAMPLES, TIMES = "sample{s}", "different time{s}"


def _fewest(facts: Any, folds: Any, select: int | None = None) -> tuple[str, int]:
    """Return (what is distributed to the folds, the most of it that each leaves to train on).

    Of folds that the data bring, each may hold out nothing of it.

    Args:
        select: number of inner folds, which leave less.
    """
    if facts.own_folds:
        folds = "test"
    if facts.times:
        left = facts.times
        if folds != "test":  # the earliest part; each later one has at least one time
            first = facts.train - folds * max(1, facts.train // (folds + 1))
            left = min(first, left - folds)
        return TIMES, max(0, left - (select or 0))
    if facts.groups:
        what, left = "group{s}", facts.groups
    elif facts.class_counts:
        what, left = (
            "sample{s} of the smallest class",
            min(filter(None, facts.class_counts), default=0),
        )
    else:
        what, left = SAMPLES, facts.train
    for parts in (folds, select):
        if parts not in ("test", None):
            left -= -(-left // parts)
    return what, left


def _counted(count: int, what: str) -> str:
    return f"{count} {what.format(s='s' * (count != 1))}"


def samples(count: int) -> str:
    return _counted(count, SAMPLES)


def _check_folds(path: Keys, label: str, facts: Any, folds: int) -> Iterator[Problem]:
    """Check that each fold has a sample of every class and a group, or a time if ordered.

    Folds that the data bring are taken as they are.
    """
    if facts.own_folds:
        if folds != len(facts.own_folds):
            own = len(facts.own_folds)
            yield path, f"found {folds}; {label!r} brings {own} folds of its own; expected {own}"
        return
    if facts.times:
        if folds >= facts.times:
            yield (
                path,
                (
                    f"found {folds}; {label!r} has {facts.times} different times, and the first "
                    f"ones are only trained on; expected at most {facts.times - 1} folds"
                ),
            )
        return
    count = min(facts.class_counts or [facts.train])
    if facts.class_counts and folds > count:
        # Scores of a fold that lacks a class cannot be compared with others: scikit-learn warns.
        fewer = f"use at most {count} folds, or drop these" if count > 1 else "drop such"
        names = dict(zip(facts.class_counts, facts.names or (), strict=False))
        name = f", {names[count]}," if count in names else ""
        hint = "; to predict numbers, set `task: regression`"
        yield (
            path,
            f"found {folds}; the smallest class of {label!r}{name} has "
            f"{samples(count)}, and each fold needs one; {fewer} samples, or give them "
            f"another class{hint if facts.are_numbers else ''}",
        )
    most = facts.groups or facts.train
    if folds > most:
        unit = "groups" if facts.groups else "samples"
        yield path, f"found {folds}; {label!r} has {most} {unit}; expected at most as many folds"


def _check_selection(
    config: dict[str, Any], path: Keys, study: dict[str, Any]
) -> Iterator[Problem]:
    """Check that a selection has candidates to choose from and enough samples for inner folds."""
    if "select" not in study:
        return
    swept = config.get(settings.SWEPT, {})
    if not any(label in swept for label in study["models"]):
        yield (
            (*path, "select"),
            "there is nothing to choose from: no model of this study has a list or a range",
        )
    if study["train_sizes"] != ["all"]:
        yield (*path, "select"), "conflicts with `train_sizes`; remove one of them"
    if "against" in study:
        yield (*path, "select"), "conflicts with `against`; remove one of them"
    inner, folds = study["select"], study["folds"]
    for label in study["datasets"]:
        facts = _facts(config, label)
        if facts is None:
            continue
        what, left = _fewest(facts, folds)
        most = left - (what == TIMES)  # the first ones are only trained on
        if inner > most:
            yield (
                (*path, "select"),
                f"found {inner}; a fold of {label!r} leaves {_counted(left, what)} to train on; "
                f"expected at most {max(most, 0)} inner folds",
            )


def choices_that_differ(config: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each study that makes the choice of an earlier one in another way."""
    known: dict[str, Selection] = {}
    studies = [(name, one) for name, one in grid.with_finals(config["studies"]) if "select" in one]
    for name, study in studies if len(studies) > 1 else []:
        for one in grid.selections_of(config, name, study, grid.runs_of(config, study))[0]:
            first = known.setdefault(one.path, one)
            if (first.inner, first.metrics[0]) != (one.inner, one.metrics[0]):
                yield (
                    ("studies", name.removesuffix(grid.FINAL), "select"),
                    f"the study {first.study.removesuffix(grid.FINAL)} chooses between candidates "
                    "of the same runs by other inner folds, another metric or among others; give "
                    "this study an entry of its own in `models`, under another label",
                )
                break


def notes(config: dict[str, Any], name: str) -> Iterator[str]:
    """Yield sentences on what may be unintended in the data of a study and its split."""
    study = config["studies"][name]
    for label in study["models"]:
        entry = config["models"][label]
        if not component.is_estimator(entry) and "import" in entry:
            given = registry.model(entry["import"]).supplied - {*grid.model_options(entry)}
            if given:
                yield (
                    f"{entry['import']}: its {' and '.join(sorted(given))} are taken from the "
                    "data, unless its entry has keys of these names"
                )
    for label in study["datasets"]:
        facts = _facts(config, label)
        if facts is None:
            continue
        yield from (f"{label}: {note}" for note in facts.notes)


def _facts(config: dict[str, Any], label: str) -> Any:
    """Return the Facts of a dataset; None: unknown, or _check_tables() reports why."""
    return scoring.facts_of(grid.labelled(config, "datasets", label))
