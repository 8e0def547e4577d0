"""The products of a study: tables and figures, each defined by one file in tables/ or figures/.

A file describes its product in literals, so that adding a product changes no other file:

* TITLE, SECTION ({metric}, data, speed or training) and CAPTION, for the report. {study},
  {baseline}, {target}, {metric} and {curve} in them are filled in.
* WHEN: a name in CONDITIONS, if only some studies have the product.
* ORDER: a unique number, the position in the report, and in the verdict if there are sentences.
* LEADING: the rank among products that may open the report; the first three do.
* table(...) -> DataFrame, or figure(...) -> Figure.
* COMPARED, for tables, optional: the columns that the page shows, with the settings that differ.
* NUMBERS and OTHERS, for tables, optional: the formats of columns that wording.NUMBERS lacks.
* sentences(...) -> iterable of str, optional: sentences for the verdict.

The arguments of these functions are named after their data: a tidy CSV (TIDY in study.py), a table
(`speed_table`), one of these from the study that this one is compared with (`against_runs`), the
`predictions` of the runs, `datasets` (label -> the prepared Dataset, if it still exists), or
`facts`. If the first argument of a figure is an empty frame, the figure is drawn without content. A
table that is made from another has the larger ORDER. A figure is shown above the table of the same
name.

The files are parsed, not imported, because the workflow needs all of this without pandas.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allcores_study.analysis import metrics
from allcores_study.analysis.metrics import ACCURACY, Metric
from allcores_study.config import component, fit, grid, registry, sweeps
from allcores_study.config.settings import SWEPT, WRITTEN

if TYPE_CHECKING:
    from allcores_study.config.component import Component
    from allcores_study.config.run import Entry

FOLDERS = {"tables": "table", "figures": "figure"}
LEAST_COLUMNS, MOST_COLUMNS = 2, 100  # of a table, whose importance is measured


@dataclass(frozen=True)
class Product:
    """A table or a figure.

    Attributes:
        name: such as "speed_table"; its files have this name.
        kind: "table" or "figure".
        module: dotted name of its module.
        title, caption, section, order: TITLE, CAPTION, SECTION and ORDER of the file.
        leading: its LEADING, if any.
        when: a key of CONDITIONS; None: every study has it.
        inputs: names of the arguments of table() or figure().
        inputs_of_sentences: names of the arguments of sentences(); None: there is no sentences().
    """

    name: str
    kind: str
    module: str
    title: str
    caption: str
    section: str
    leading: int | None
    when: str | None
    order: int
    inputs: tuple[str, ...]
    inputs_of_sentences: tuple[str, ...] | None

    @property
    def files(self) -> list[str]:
        """The names of its files."""
        suffixes = ("csv",) if self.kind == "table" else ("png", "svg")
        return [f"{self.name}.{suffix}" for suffix in suffixes]


@dataclass(frozen=True)
class StudyFacts:
    """StudyFacts about a study from its config, for its tables, figures and sentences.

    Attributes:
        study: its name.
        baseline: the strategy that speeds and accuracies are compared with.
        target: the accuracy to be reached; None: there is none.
        references: published times, scores or both: [{model, label, seconds, images, cores if
            known, score}, ...].
        metrics: the leading one first.
        curve: the metric that is known for every epoch.
        stratified: see tasks/base.py.
        drawn: (label, how its candidates were drawn, in words) for each swept model with a
            `sample`.
        base: the baseline with its number of cores: "serial on 1 core".
    """

    study: str
    baseline: str
    target: float | None
    references: tuple[dict[str, Any], ...]
    metrics: tuple[Metric, ...] = (ACCURACY,)
    curve: Metric = ACCURACY
    stratified: str = "stratified "
    drawn: tuple[tuple[str, str], ...] = ()
    base: str = ""

    @property
    def metric(self) -> Metric:
        """The leading metric, that of the scores."""
        return self.metrics[0]

    def filled(self, text: str) -> str:
        """Fill these facts into a caption or title."""
        return text.format(**vars(self), metric=self.metric)


@functools.cache
def by_name() -> dict[str, Product]:
    """Return name -> Product, in the order of the report."""
    products = []
    for folder, kind in FOLDERS.items():
        for file in registry.files(registry.LIBRARY / "analysis" / folder):
            constants, arguments = component.literals_of(file), component.arguments_of(file)
            names = arguments.get("sentences")
            products.append(
                Product(
                    name=f"{file.stem}_{kind}",
                    kind=kind,
                    module=f"allcores_study.analysis.{folder}.{file.stem}",
                    title=constants["TITLE"],
                    caption=" ".join(constants["CAPTION"].split()),
                    section=constants["SECTION"],
                    leading=constants.get("LEADING"),
                    when=constants.get("WHEN"),
                    order=constants["ORDER"],
                    inputs=tuple(arguments[kind]),
                    inputs_of_sentences=None if names is None else tuple(names),
                )
            )
    products.sort(key=lambda product: product.order)
    return {product.name: product for product in products}


def load(name: str) -> ModuleType:
    """Import the module of a product."""
    return importlib.import_module(by_name()[name].module)


def of_study(config: dict[str, Any], study: str) -> list[Product]:
    """Return the products of a study."""
    settings = config["studies"][study]
    is_met: dict[str | None, bool] = {
        name: condition(config, settings) for name, condition in CONDITIONS.items()
    }
    is_met[None] = True
    filled = facts_of(config, study).filled
    return [
        dataclasses.replace(product, title=filled(product.title), section=filled(product.section))
        for product in by_name().values()
        if is_met[product.when]
    ]


def facts_of(config: dict[str, Any], study: str) -> StudyFacts:
    """Return the facts of a study."""
    settings = config["studies"][study]
    study_metrics, task = metrics.of_study(config, study), fit.task_of_study(config, settings)
    baseline = settings.get("baseline") or grid.strategies(config, settings)[0].label
    return StudyFacts(
        study=study,
        baseline=baseline,
        base=f"{baseline} on {_fewest_cores(config, settings, baseline)}",
        target=settings.get("target_accuracy"),
        references=tuple(settings.get("references", [])),
        metrics=study_metrics,
        curve=Metric.of(task.constants["METRICS"][0]),
        stratified=task.constants["STRATIFIED"],
        drawn=tuple(
            (label, sweeps.how_drawn(entry))
            for label, entry in config.get(WRITTEN, {}).items()
            if sweeps.SAMPLE in entry
        ),
    )


def _fewest_cores(config: dict[str, Any], settings: dict[str, Any], baseline: str) -> str:
    """Return the smallest number of cores among a strategy's setups, in words."""
    cores = [
        (workers + servers) * threads
        for strategy, _, workers, servers, threads in grid.layouts(config, settings)
        if strategy.label == baseline
    ]
    return "1 core" if min(cores) == 1 else f"{min(cores)} cores"


def _is_asynchronous(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether the study has an asynchronous strategy."""
    entries, components = grid.strategies(config, settings), registry.strategies()
    return any(_constant(components, entry, "asynchronous", False) for entry in entries)


def _constants_of_datasets(
    config: dict[str, Any], settings: dict[str, Any], constant: str, default: bool
) -> list[Any]:
    entries = [grid.labelled(config, "datasets", label) for label in settings["datasets"]]
    components = registry.datasets()
    return [_constant(components, entry, constant, default) for entry in entries]


def _has_several_columns(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether a dataset is a table with columns of which some may matter more."""
    has_columns = _constants_of_datasets(config, settings, "HAS_COLUMNS", False)
    entries = [grid.labelled(config, "datasets", label) for label in settings["datasets"]]
    tables = [entry for entry, has in zip(entries, has_columns, strict=True) if has]
    counts = [facts and facts.count_columns for facts in map(registry.facts, tables)]
    return any(count is None or LEAST_COLUMNS <= count <= MOST_COLUMNS for count in counts)


def _is_of_several_numbers(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    entries = [grid.labelled(config, "datasets", label) for label in settings["datasets"]]
    known = [registry.facts(entry) for entry in entries]
    return _targets(config, settings) == "numbers" and any(
        isinstance(entry.options.get("target"), list) or (facts and facts.outputs > 1)
        for entry, facts in zip(entries, known, strict=True)
    )


def _has_groups(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether the samples of test folds are in groups."""
    entries = [grid.labelled(config, "datasets", label) for label in settings["datasets"]]
    known = [registry.facts(entry) for entry in entries]
    return settings["folds"] != "test" and any(
        entry.options.get("groups") or (facts and facts.groups)
        for entry, facts in zip(entries, known, strict=True)
    )


def _targets(config: dict[str, Any], settings: dict[str, Any]) -> str:
    return fit.task_of_study(config, settings).constants["TARGETS"]


def _constant(components: dict[str, Component], entry: Entry, constant: str, default: bool) -> Any:
    return components[entry.name].constants.get(constant, default)


def _has_several_setups(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether there are speeds to compare."""
    return len(list(grid.layouts(config, settings))) > 1


def _is_timed(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether speeds are compared: of setups, with published times or another study."""
    is_compared = "against" in settings or _has_references(settings, "seconds")
    return is_compared or _has_several_setups(config, settings)


def _has_several_models(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether there are several models or schedules whose scores can be compared."""
    schedules = settings["schedules"]
    models = settings["models"]
    if "select" in settings:  # the candidates of a sweep are one model
        models = {sweeps.family_of(config, label) for label in models}
    return len(models) * len(schedules) > 1


def _has_networks(config: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether anything is trained in epochs."""
    entries = (config["models"][label] for label in settings["models"])
    return not all(map(component.is_estimator, entries))


def _has_references(settings: dict[str, Any], key: str) -> bool:
    return any(key in reference for reference in settings.get("references", []))


# Condition -> function(config, settings of a study): whether it is met.
CONDITIONS = {
    "columns": lambda config, settings: any(
        _constants_of_datasets(config, settings, "HAS_COLUMNS", False)
    ),
    "several_columns": _has_several_columns,
    "networks": _has_networks,
    "classes": lambda config, settings: _targets(config, settings) == "classes",
    "several_outputs": lambda config, settings: (
        _targets(config, settings) in ("labels", "pixels")
        or _is_of_several_numbers(config, settings)
    ),
    "pixels": lambda config, settings: _targets(config, settings) == "pixels",
    "groups": _has_groups,
    "numbers": lambda config, settings: _targets(config, settings) == "numbers",
    "asynchronous": _is_asynchronous,
    "several_setups": _has_several_setups,
    "timed": _is_timed,
    "timed_networks": lambda config, settings: (
        _is_timed(config, settings) and _has_networks(config, settings)
    ),
    "timed_whole": lambda config, settings: (
        _is_timed(config, settings) and "select" not in settings
    ),
    "several_models": _has_several_models,
    "several_sizes": lambda config, settings: len(settings.get("train_sizes", [])) > 1,
    "curves": lambda config, settings: settings.get("curves", False),
    "target_accuracy": lambda config, settings: "target_accuracy" in settings,
    "swept": lambda config, settings: any(
        model in config.get(SWEPT, {}) for model in settings["models"]
    ),
    "references": lambda config, settings: _has_references(settings, "seconds"),
    "published_scores": lambda config, settings: _has_references(settings, "score"),
    "against": lambda config, settings: "against" in settings,
}
