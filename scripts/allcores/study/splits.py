"""Check how a study splits its datasets against what is known of them."""

from allcores.study import grid, registry
from allcores.study.run import AUTO
from allcores.study.schema import is_integer, listed


def findings(config, path, given):
    """(path, text) for each fold, test set or training-set size that a dataset has no room for."""
    yield from _of_selection(config, path, given)
    folds = given.get("folds")
    for label in listed(given.get("datasets")):
        metadata = _known(config, label)
        if metadata is None:
            continue
        if isinstance(folds, int) and folds > metadata.smallest_class:
            yield (
                (*path, "folds"),
                f"found {folds}; the smallest class of {label!r} has {metadata.smallest_class} "
                "samples, so that many folds at most",
            )
        if folds == "test" and metadata.test == 0:
            yield (
                (*path, "folds"),
                f"{label!r} has no test set of its own; expected a number of folds",
            )
        available = metadata.train
        if isinstance(folds, int) and folds > 1:
            available = metadata.train * (folds - 1) // folds
        for position, size in enumerate(listed(given["train_sizes"])):
            if isinstance(size, int) and size > available:
                yield (
                    (*path, "train_sizes", position),
                    f"found {size}; {label!r} leaves {available} samples to train on",
                )


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
        smallest = metadata.smallest_class
        if isinstance(folds, int):
            smallest -= -(-smallest // folds)
        if inner > smallest:
            yield (
                (*path, "select"),
                f"found {inner}; the smallest class of {label!r} leaves {smallest} samples to "
                "train on, so that many inner folds at most",
            )


def _known(config, label):
    """The Metadata of a dataset; None: nothing is known, or another check tells why."""
    try:
        return registry.metadata(grid.choice(config, "datasets", label))
    except (KeyError, TypeError, ArithmeticError, OSError):
        return None
