"""Selections: which candidate of a sweep a run trains, by inner folds of its training set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allcores_study.config.run import Run


@dataclass(frozen=True)
class Selection:
    """The choice that the job of a chosen run makes before it trains.

    It is scikit-learn's GridSearchCV inside one outer fold. A chosen run has the path of the swept
    model, so that it is known before the choice is made.

    Attributes:
        study: the study that asks for it.
        family: the label of the swept model in the config.
        metrics: names of the metrics that inner runs record; the first one decides.
        inner: label of each candidate -> paths of its inner runs, whose scores are compared.
        outer: label of each candidate -> the Run that is trained if it is chosen.
    """

    study: str
    family: str
    metrics: tuple[str, ...]
    inner: dict[str, list[str]]
    outer: dict[str, Run]

    @property
    def path(self) -> str:
        """The path of the chosen run."""
        return next(iter(self.outer.values())).path

    @property
    def compared(self) -> list[str]:
        """The paths of all inner runs."""
        return [path for paths in self.inner.values() for path in paths]


def of_runs(
    study: str, runs: Iterable[Run], folds: int, metrics: tuple[str, ...], families: dict[str, str]
) -> tuple[list[Selection], dict[str, Run]]:
    """Return the Selections between runs that differ only in their candidate.

    Args:
        study: name of their study.
        runs: of every candidate, on the whole training set of every fold.
        folds: number of inner folds.
        metrics: as in Selection.
        families: label of each candidate -> label of the swept model.

    Returns:
        (the Selections, path -> Run of all inner runs)
    """
    groups: dict[str, list[tuple[str, Run]]] = {}
    for run in runs:
        family = families[run.model.label]
        outer = dataclasses.replace(run, model=dataclasses.replace(run.model, label=family))
        groups.setdefault(outer.path, []).append((run.model.label, outer))
    selections: list[Selection] = []
    inner_runs: dict[str, Run] = {}
    for candidates in groups.values():
        inner: dict[str, list[str]] = {}
        for label, outer in candidates:
            model = dataclasses.replace(outer.model, label=label)
            of_label = [
                dataclasses.replace(outer, model=model, inner_folds=folds, inner_fold=fold)
                for fold in range(folds)
            ]
            inner[label] = [run.path for run in of_label]
            inner_runs |= {run.path: run for run in of_label}
        family = candidates[0][1].model.label
        selections.append(Selection(study, family, metrics, inner, dict(candidates)))
    return selections, inner_runs
