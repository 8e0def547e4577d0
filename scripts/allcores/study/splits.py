"""Check how a study splits its datasets against what is known of them."""

from allcores.study import grid, registry
from allcores.study.schema import listed


def findings(config, path, given):
    """(path, text) for each fold, test set or training-set size that a dataset has no room for."""
    folds = given.get("folds")
    for label in listed(given.get("datasets")):
        chosen = grid.choice(config, "datasets", label)
        try:
            metadata = registry.metadata(chosen)
        except (KeyError, TypeError, ArithmeticError, OSError):  # told by _of_entries or _of_paths
            continue
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
