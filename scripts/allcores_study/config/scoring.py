"""By which metrics a study scores its runs, and what of its datasets decides that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores_study.config import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allcores_study.config.run import Entry


def metrics_of(study: dict[str, Any], datasets: Sequence[Entry]) -> tuple[str, ...]:
    """Return the names of the metrics of a study, the leading one first.

    Args:
        study: its settings.
        datasets: its datasets, of one task.
    """
    if "metrics" in study:
        return tuple(study["metrics"])
    task, first = registry.task(datasets[0]).constants, datasets[0]
    if task["IS_SCALED"] and count_numbers(first) > 1:
        return task["METRICS"][:1]  # the others have units, so their mean has no meaning
    if task["TARGETS"] == "classes" and count_classes(first) == 2:
        return (*task["METRICS"], "roc_auc")
    return task["METRICS"]


def count_numbers(dataset: Entry) -> int:
    """Return how many numbers are predicted for each sample of a dataset, if known."""
    metadata = metadata_of(dataset)
    if metadata is None:  # a large table, which is not read yet
        target = dataset.options.get("target")
        return len(target) if isinstance(target, list) else 1
    return metadata.numbers


def count_classes(dataset: Entry) -> int | None:
    """Return how many classes a dataset has; None: it has none, or is not read yet."""
    metadata = metadata_of(dataset)
    return metadata and metadata.classes


def metadata_of(dataset: Entry) -> Any:
    """Return the Metadata of a dataset; None: unknown, or it cannot be read, which is reported."""
    try:
        return registry.metadata(dataset)
    except (ValueError, OSError) as error:
        return getattr(error, "metadata", None)  # what is known although features are unusable
