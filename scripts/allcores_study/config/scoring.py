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
    facts = facts_of(dataset)
    if facts is None:  # a large table, which is not read yet
        target = dataset.options.get("target")
        return len(target) if isinstance(target, list) else 1
    return 1 if facts.class_counts else facts.outputs


def count_classes(dataset: Entry) -> int | None:
    """Return how many classes a dataset has; None: it has none, or is not read yet."""
    facts = facts_of(dataset)
    return facts and facts.class_counts and len(facts.class_counts)


def facts_of(dataset: Entry) -> Any:
    """Return the Facts of a dataset; None: unknown, or it cannot be read, which is reported."""
    try:
        return registry.facts(dataset)
    except (ValueError, OSError):
        return None
