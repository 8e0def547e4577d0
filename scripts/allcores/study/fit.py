"""Check that splits, losses and augmentation of a study fit what is known of its datasets."""

import math
import os

from allcores.study import grid, registry
from allcores.study.run import AUTO
from allcores.study.schema import choices, is_integer, listed, mapping

# Losses of numbers, and the value of an option `weight` of the others; see training/losses.py.
KNOWN = registry.literals_of(registry.LIBRARY / "training" / "losses.py")


def findings(config, path, given):
    """(path, text) for everything that does not suit a dataset."""
    yield from _of_tables(config, given)
    yield from _of_metrics(config, path, given)
    yield from _of_losses(config, path, given)
    yield from _of_augmentation(config, path, given)
    yield from _of_splits(config, path, given)
    yield from _of_validation(config, path, given)
    yield from _of_selection(config, path, given)


def _of_tables(config, given):
    """Files that can be read at once, and hold something that cannot be used."""
    for label in listed(given.get("datasets")):
        if not _is_described(config, label):
            continue  # another check tells why
        try:
            registry.metadata(grid.choice(config, "datasets", label))
        except (ValueError, OSError, TypeError) as error:  # the last of values such as lists
            yield ("datasets", label), str(error)


def of_numbers(config, given):
    """Labels of the datasets of a study whose targets are numbers."""
    chosen = [grid.choice(config, "datasets", label) for label in listed(given.get("datasets"))]
    return [each.label for each in chosen if registry.is_regression(each)]


def _of_metrics(config, path, given):
    """Numbers are measured by other metrics than classes."""
    numbers, datasets = of_numbers(config, given), listed(given.get("datasets"))
    if 0 < len(numbers) < len(datasets):
        other = next(label for label in datasets if label not in numbers)
        yield (
            (*path, "datasets"),
            f"the targets of {numbers[0]!r} are numbers, those of {other!r} classes: expected a "
            "study for each",
        )
    if numbers and "target_accuracy" in given:
        yield (*path, "target_accuracy"), f"the targets of {numbers[0]!r} are numbers"
    suitable = [
        name for name, found in registry.metrics().items() if _is_of_numbers(found) == bool(numbers)
    ]
    for position, name in enumerate(listed(given.get("metrics"))):
        try:
            suits = name in suitable or (
                ":" in str(name) and _is_of_numbers(registry.metric(name)) == bool(numbers)
            )
        except ValueError as error:
            yield (*path, "metrics", position), str(error)
            continue
        if not suits:
            of = "numbers" if numbers else "classes"
            yield (
                (*path, "metrics", position),
                f"found {name!r}; the targets are {of}; {choices(name, suitable)}",
            )


def _is_of_numbers(metric):
    """Whether the Component of a metric judges numbers, not classes."""
    return metric.constants.get("of_numbers", False)


def _of_losses(config, path, given):
    """Numbers take other losses than classes."""
    numbers = of_numbers(config, given)
    for label in listed(given.get("models")):
        loss = mapping(mapping(mapping(config.get("models")).get(label)).get("loss"))
        name = registry.canonical(loss.get("name"), registry.losses())
        place = ("models", label, "loss")
        if numbers and name and name not in KNOWN["NUMBER_TARGETS"]:
            yield (
                (*place, "name"),
                f"the targets of {numbers[0]!r} are numbers, which {name} does not take; "
                f"{choices(name, KNOWN['NUMBER_TARGETS'])}",
            )
        elif "weight" in loss and (numbers or name not in KNOWN["CLASS_TARGETS"]):
            known = ", ".join(KNOWN["CLASS_TARGETS"])
            yield (*place, "weight"), f"is of classes, for {known}; not for {name}"
        elif "weight" in loss and loss["weight"] != KNOWN["BALANCED"]:
            yield (*place, "weight"), f"found {loss['weight']!r}; known: {KNOWN['BALANCED']}"


def _of_augmentation(config, path, given):
    """Only images can be cropped and mirrored."""
    for label in listed(given.get("datasets")):
        metadata = _known(config, label)
        if metadata is None or len(metadata.shape) == 3:
            continue
        for model in listed(given.get("models")):
            if mapping(mapping(config.get("models")).get(model)).get("augmentation"):
                yield (
                    ("models", model, "augmentation"),
                    f"is for images; the samples of {label!r} have the shape {metadata.shape}",
                )


def _of_splits(config, path, given):
    """Folds, test set and training-set sizes for which there are enough samples."""
    folds = given.get("folds")
    for label in listed(given.get("datasets")):
        metadata = _known(config, label)
        if metadata is None:
            continue
        if isinstance(folds, int):
            yield from _of_folds((*path, "folds"), label, metadata, folds)
        if folds == "test" and metadata.test == 0:
            yield (
                (*path, "folds"),
                f"{label!r} has no test set of its own; expected a number of folds",
            )
        available = _to_train_on(metadata, folds)
        for position, size in enumerate(listed(given["train_sizes"])):
            if isinstance(size, int) and size > available:
                yield (
                    (*path, "train_sizes", position),
                    f"found {size}; {label!r} leaves {available} samples to train on",
                )


def _to_train_on(metadata, folds):
    """How many samples each fold, or the first one in time, leaves to train on, about."""
    if not is_integer(folds) or folds < 2:
        return metadata.train
    if metadata.times:
        return metadata.train - folds * (metadata.train // (folds + 1))
    return metadata.train * (folds - 1) // folds


def _of_validation(config, path, given):
    """A validation part has a sample of every class, also of the smallest training part."""
    for label in listed(given.get("datasets")):
        metadata = _known(config, label)
        if metadata is None or metadata.groups or metadata.times or metadata.classes is None:
            continue
        available = _to_train_on(metadata, given.get("folds"))
        if is_integer(select := given.get("select")) and select > 1:
            available -= -(-available // select)
        sizes = [size for size in listed(given.get("train_sizes")) if is_integer(size)]
        available = min([available, *sizes])
        for model in listed(given.get("models")):
            part = mapping(mapping(config.get("models")).get(model)).get("validation")
            # As scikit-learn rounds it.
            if isinstance(part, int | float) and math.ceil(part * available) < metadata.classes:
                yield (
                    ("models", model, "validation"),
                    f"found {part:g}; of the {available} samples that {label!r} leaves to train on "
                    f"that is less than {metadata.classes}, one of each class",
                )


def _of_folds(path, label, metadata, folds):
    """Each fold has a sample of every class, and a group of its own; of ordered ones, times."""
    if metadata.times:
        if folds >= metadata.times:
            yield (
                path,
                (
                    f"found {folds}; {label!r} has {metadata.times} different times, of which the "
                    f"first are only trained on, so that {metadata.times - 1} folds at most"
                ),
            )
        return
    if metadata.smallest_class is not None and folds > metadata.smallest_class:
        yield (
            path,
            f"found {folds}; the smallest class of {label!r} has {metadata.smallest_class} "
            "samples, so that many folds at most",
        )
    most = metadata.groups or metadata.train
    if folds > most:
        what = "groups" if metadata.groups else "samples"
        yield path, f"found {folds}; {label!r} has {most} {what}, so that many folds at most"


def _of_selection(config, path, given):
    """A selection has something to choose from, and what it is made on is the training part."""
    if "select" not in given:
        if "halving" in given:
            yield (*path, "halving"), "takes a study that selects, by `select`"
        return
    swept = config.get(grid.SWEPT, {})
    if not any(label in swept for label in listed(given.get("models"))):
        yield (
            (*path, "select"),
            "there is nothing to choose from: no model of this study has a list of values",
        )
    if given["train_sizes"] != ["all"]:
        yield (*path, "select"), "cannot stand beside `train_sizes`"
    if AUTO in given["strategies"] or "against" in given:
        other = "against" if "against" in given else "strategies: [auto]"
        yield (*path, "select"), f"cannot stand beside `{other}`"
    inner, folds = given["select"], given.get("folds")
    for label in listed(given.get("datasets")):
        metadata = _known(config, label)
        if metadata is None or not is_integer(inner):
            continue
        smallest = metadata.smallest_class or metadata.train
        if isinstance(folds, int):
            smallest -= -(-smallest // folds)
        if inner > smallest:
            of_what = "the smallest class" if metadata.smallest_class else "the training part"
            yield (
                (*path, "select"),
                f"found {inner}; {of_what} of {label!r} leaves {smallest} samples to "
                "train on, so that many inner folds at most",
            )


def notes(config, study):
    """Sentences on what may not be meant so, of the data of a study and how they are split."""
    given = config["studies"][study]
    for label in given["datasets"]:
        metadata = _known(config, label)
        if metadata is None:
            continue
        yield from (f"{label}: {note}" for note in metadata.notes)
        folds = given["folds"]
        if metadata.times and is_integer(folds):
            first = metadata.train - folds * (metadata.train // (folds + 1))
            if metadata.alike >= first:
                yield (
                    f"{label}: the first part in time, of {first} samples, is all of one class: "
                    "the first fold is held out of a training on that alone"
                )


def _is_described(config, label):
    """Whether a dataset has all the options that it takes, and no others, and its file is there."""
    choice = grid.choice(config, "datasets", label)
    component = registry.datasets().get(choice.name)
    if component is None:
        return False
    needed = {name for name, default in component.options.items() if default is ...}
    path = choice.options.get("path")
    if path is not None and not (isinstance(path, str) and "\0" not in path):
        return False
    is_there = path is None or os.access(path, os.R_OK)
    lists = [name for name, default in component.options.items() if isinstance(default, tuple)]
    if not all(isinstance(choice.options.get(name, []), list) for name in lists):
        return False
    return is_there and needed <= set(choice.options) <= set(component.options)


def _known(config, label):
    """The Metadata of a dataset; None: nothing is known, or another check tells why."""
    if not _is_described(config, label):
        return None
    try:
        return registry.metadata(grid.choice(config, "datasets", label))
    except (ValueError, OSError, TypeError, ArithmeticError):
        return None
