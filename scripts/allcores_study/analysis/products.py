"""The tables and figures of a report, in their order.

Each is a file in tables/ or figures/, which has

* TITLE and CAPTION, for the page. {study}, {baseline}, {target}, {metric} and {curve} in them are
  filled in.
* table(...) -> DataFrame, or figure(...) -> Figure; None if the study has nothing of that kind.
* COMPARED, for tables, optional: the columns that the page shows, with the settings that differ.
* NUMBERS and OTHERS, for tables, optional: the formats of columns that wording.NUMBERS lacks.
* sentences(...) -> iterable of str, optional: sentences for the page, if the product is made.

The arguments of these functions are named after their data: a tidy CSV (TIDY in study.py), a table
(`speed_table`), one of these from the study that this one is compared with (`against_runs`), the
`predictions` of the runs, `datasets` (label -> the prepared Dataset, if it still exists), or
`facts`. A product is not made if there is no such table, or if its first argument is an empty
frame. A figure is shown above the table of the same name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allcores_study.analysis import metrics
from allcores_study.analysis.metrics import ACCURACY, Metric
from allcores_study.config import fit, grid, registry, sweeps
from allcores_study.config.settings import WRITTEN

if TYPE_CHECKING:
    import pandas as pd

# Section of the page -> its products; a table that is made from another comes after it. Products
# that are not listed are in the last section.
SECTIONS = {
    "speed": (
        *("packing_table", "packing_figure", "speed_table", "speedup_figure", "phases_figure"),
        *("elapsed_figure", "size_figure"),
    ),
    "{metric}": (
        *("accuracy_figure", "published_table", "masks_figure", "models_table", "accuracy_table"),
        *("target_table", "per_group_table", "sweep_figure", "sweep_table"),
        *("learning_curve_figure", "per_class_table", "per_output_table", "confusion_figure"),
        *("probabilities_figure", "residuals_figure", "columns_figure", "columns_table"),
    ),
    "training": ("loss_figure", "utilisation_figure", "staleness_figure"),
    "data": ("data_table",),
}
LAST = "more"
# The page opens with the first three of these that it has.
LEADING = (
    *("packing_figure", "elapsed_figure", "speedup_figure", "accuracy_figure", "models_table"),
    *("masks_figure", "sweep_figure", "loss_figure"),
)
FOLDERS = {"table": "tables", "figure": "figures"}
SETUP = ["strategy", "nodes", "workers", "threads"]


@dataclass(frozen=True)
class StudyFacts:
    """Facts about a study from its config, for its tables, figures and sentences.

    Attributes:
        study: its name.
        baseline: the strategy that speeds and accuracies are compared with.
        target: the accuracy to be reached; None: there is none.
        references: published times, scores or both: [{model, label, seconds, images, cores if
            known, score}, ...].
        metrics: the leading one first.
        curve: the metric that is known for every epoch.
        targets: what is predicted: TARGETS of the task.
        stratified: see tasks/base.py.
        drawn: (label, how its candidates were drawn, in words) for each swept model with a
            `sample`.
        base: the baseline with its number of cores: "serial on 1 core".
        is_timed: whether speeds are compared with published ones, or with those of another study.
        selects: whether candidates are chosen in inner folds.
    """

    study: str
    baseline: str
    target: float | None
    references: tuple[dict[str, Any], ...]
    metrics: tuple[Metric, ...] = (ACCURACY,)
    curve: Metric = ACCURACY
    targets: str = "classes"
    stratified: str = "stratified "
    drawn: tuple[tuple[str, str], ...] = ()
    base: str = ""
    is_timed: bool = False
    selects: bool = False

    @property
    def metric(self) -> Metric:
        """The leading metric, that of the scores."""
        return self.metrics[0]

    def filled(self, text: str) -> str:
        """Fill these facts into a caption or title."""
        return text.format(**vars(self), metric=self.metric)

    def compares_speeds(self, rows: pd.DataFrame) -> bool:
        """Return whether there are speeds to compare, given rows of the study's runs."""
        return self.is_timed or has_several_setups(rows)


def has_several_setups(rows: pd.DataFrame) -> bool:
    return len(rows[SETUP].drop_duplicates()) > 1


def sections() -> dict[str, str]:
    """Return name of a product -> its section, in the order of the page."""
    listed = {name: section for section, names in SECTIONS.items() for name in names}
    found = [
        f"{file.stem}_{kind}"
        for kind, folder in FOLDERS.items()
        for file in registry.files(registry.LIBRARY / "analysis" / folder)
    ]
    return listed | {name: LAST for name in found if name not in listed}


def kind_of(name: str) -> str:
    """Return "table" or "figure"."""
    return name.rpartition("_")[2]


def module_of(name: str) -> str:
    """Return the dotted name of the module of a product."""
    stem, _, kind = name.rpartition("_")
    return f"allcores_study.analysis.{FOLDERS[kind]}.{stem}"


def load(name: str) -> ModuleType:
    """Import the module of a product."""
    return importlib.import_module(module_of(name))


def arguments_of(function: Callable[..., Any], frames: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a product's function, by their names; None: it has nothing to show.

    Args:
        frames: name of an argument -> what there is, frames and others.
    """
    names = list(inspect.signature(function).parameters)
    if not frames.keys() >= {*names} or getattr(frames[names[0]], "empty", False):
        return None
    return {name: frames[name] for name in names}


def facts_of(config: dict[str, Any], study: str) -> StudyFacts:
    """Return the facts of a study."""
    settings = config["studies"][study]
    study_metrics, task = metrics.of_study(config, study), fit.task_of_study(config, settings)
    baseline = settings.get("baseline") or grid.strategies(config, settings)[0].label
    references = tuple(settings.get("references", []))
    return StudyFacts(
        study=study,
        baseline=baseline,
        base=f"{baseline} on {_fewest_cores(config, settings, baseline)}",
        target=settings.get("target_accuracy"),
        references=references,
        metrics=study_metrics,
        curve=Metric.of(task.constants["METRICS"][0]),
        targets=task.constants["TARGETS"],
        stratified=task.constants["STRATIFIED"],
        drawn=tuple(
            (label, sweeps.how_drawn(entry))
            for label, entry in config.get(WRITTEN, {}).items()
            if entry.get(sweeps.SAMPLE) is not None
        ),
        is_timed="against" in settings or any("seconds" in one for one in references),
        selects="select" in settings,
    )


def _fewest_cores(config: dict[str, Any], settings: dict[str, Any], baseline: str) -> str:
    """Return the smallest number of cores among a strategy's setups, in words."""
    cores = [
        (workers + servers) * threads
        for strategy, _, workers, servers, threads in grid.layouts(config, settings)
        if strategy.label == baseline
    ]
    return "1 core" if min(cores) == 1 else f"{min(cores)} cores"
