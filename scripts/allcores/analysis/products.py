"""The products of a study: tables and figures, each defined by one file in tables/ or figures/.

A file declares everything about its product, so that adding one touches no other file:

* TITLE, SECTION and CAPTION, for the report. {study}, {baseline}, {target}, {metric} and {curve}
  in them are filled in.
* WHEN: a name in CONDITIONS, or PLANNED, if only some studies have it.
* ORDER: its position in its section of the report, and in the verdict if it has sentences.
* LEADING, of a figure: its place among those that may open the report; the first three do.
* table(...) -> DataFrame and formats(table) -> {column: html_table.Number}, with COMPARED, the
  columns that are shown at first; or figure(...) -> Figure.
* sentences(...) -> iterable of str for the verdict; optional.

The arguments of these functions are named after what they are made from: a tidy CSV (`runs`,
`epochs`, ...; see tidy.py), a table (`speed_table`), either of them of the study that this one is
held against (`against_runs`), `predicted` by a plan, `predictions` of the runs, or `facts`. Where
the first is empty there is nothing to draw.

The files are read and not imported: the workflow asks for all of this without pandas.
"""

import dataclasses
import functools
import importlib
from dataclasses import dataclass

from allcores.analysis import metrics
from allcores.analysis.metrics import ACCURACY, Metric
from allcores.study import fit, grid, registry

# The condition that there is a plan to hold a study against.
PLANNED = "planned"
FOLDERS = {"tables": "table", "figures": "figure"}


@dataclass(frozen=True)
class Product:
    """A table or a figure.

    Attributes:
        name: of its files: "speed_table".
        kind: "table" or "figure".
        module: its dotted name.
        title, caption, section, order: TITLE, CAPTION, SECTION and ORDER of the file.
        leading: its LEADING, if any.
        when: a key of CONDITIONS or PLANNED; None: every study has it.
        made_from: names of the arguments of table() or figure(), without `facts`.
        takes_facts: whether table() or figure() takes `facts`.
        spoken_from: names of the arguments of sentences(), without `facts`; None: it has none.
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
    made_from: tuple
    takes_facts: bool
    spoken_from: tuple | None

    @property
    def files(self):
        """The names of its files, first the one that a report shows."""
        suffixes = ("html", "csv") if self.kind == "table" else ("png", "svg")
        return [f"{self.name}.{suffix}" for suffix in suffixes]


@dataclass(frozen=True)
class Facts:
    """What the config says of a study, for its tables, figures and sentences.

    Attributes:
        study: its name.
        baseline: the strategy that speeds and accuracies refer to.
        target: the accuracy to be reached; None: none was asked for.
        references: times that others have published: [{model, label, seconds, images, cores if
            known}, ...].
        metrics: metrics.Metric, those that it is about, the leading one first.
        curve: the Metric that is known of every epoch.
    """

    study: str
    baseline: str
    target: float | None
    references: tuple
    metrics: tuple = (ACCURACY,)
    curve: Metric = ACCURACY

    @property
    def metric(self):
        """The leading one: that of the scores."""
        return self.metrics[0]

    def filled(self, text):
        """A caption or a title with what it says of the study."""
        return text.format(**vars(self), metric=self.metric)


@functools.cache
def known():
    """Name -> Product, in the order of the report."""
    found = []
    for folder, kind in FOLDERS.items():
        for file in registry.files(f"analysis/{folder}"):
            constants, arguments = registry.literals_of(file), registry.arguments_of(file)
            spoken = arguments.get("sentences")
            found.append(
                Product(
                    name=f"{file.stem}_{kind}",
                    kind=kind,
                    module=f"allcores.analysis.{folder}.{file.stem}",
                    title=constants["TITLE"],
                    caption=" ".join(constants["CAPTION"].split()),
                    section=constants["SECTION"],
                    leading=constants.get("LEADING"),
                    when=constants.get("WHEN"),
                    order=constants["ORDER"],
                    made_from=tuple(name for name in arguments[kind] if name != "facts"),
                    takes_facts="facts" in arguments[kind],
                    spoken_from=spoken and tuple(name for name in spoken if name != "facts"),
                )
            )
    return {product.name: product for product in sorted(found, key=lambda each: each.order)}


def load(name):
    """The module of a product."""
    return importlib.import_module(known()[name].module)


def of_study(config, study, planned=False):
    """The products of a study.

    Args:
        planned: whether there is a plan to hold it against.
    """
    asked = config["studies"][study]
    met = {name: condition(config, asked) for name, condition in CONDITIONS.items()}
    met |= {None: True, PLANNED: planned}
    filled = facts_of(config, study).filled
    return [
        dataclasses.replace(product, title=filled(product.title), section=filled(product.section))
        for product in known().values()
        if met[product.when]
    ]


def facts_of(config, study):
    """The Facts of a study."""
    asked = grid.STUDY_DEFAULTS | config["studies"][study]
    of_study = metrics.of_study(config, study)
    return Facts(
        study=study,
        baseline=asked.get("baseline") or grid.strategies(config, asked)[0].label,
        target=asked.get("target_accuracy"),
        references=tuple(asked.get("references", [])),
        metrics=of_study,
        curve=Metric.of("r2" if of_study[0].of_numbers else "accuracy"),
    )


def _is_asynchronous(config, asked):
    """Whether workers of one of its strategies do not wait for each other."""
    chosen = grid.strategies(config, asked)
    return any(_constant(registry.strategies(), c, "asynchronous", False) for c in chosen)


def _is_learnable(config, asked):
    """Whether the labels of its datasets have to do with the images."""
    chosen = [grid.choice(config, "datasets", label) for label in asked["datasets"]]
    return any(_constant(registry.datasets(), c, "LEARNABLE", True) for c in chosen)


def _is_of_classes(config, asked):
    """Whether classes are predicted, which have to do with the images."""
    return _is_learnable(config, asked) and not fit.of_numbers(config, asked)


def _constant(known, choice, constant, default):
    return known[choice.name].constants.get(constant, default)


def _has_several_ways(config, asked):
    """Whether there is anything to compare in speed."""
    return len(list(grid.layouts(config, grid.STUDY_DEFAULTS | asked))) > 1


# Name of a condition -> whether a config's study meets it.
CONDITIONS = {
    "learnable": _is_learnable,
    "classes": _is_of_classes,
    "numbers": lambda config, asked: bool(fit.of_numbers(config, asked)),
    "asynchronous": _is_asynchronous,
    "several_ways": _has_several_ways,
    "several_sizes": lambda config, asked: len(asked.get("train_sizes", [])) > 1,
    "curves": lambda config, asked: asked.get("curves", False),
    "target_accuracy": lambda config, asked: "target_accuracy" in asked,
    "swept": lambda config, asked: any(m in config.get(grid.SWEPT, {}) for m in asked["models"]),
    "selects": lambda config, asked: "select" in asked,
    "references": lambda config, asked: "references" in asked,
    "against": lambda config, asked: "against" in asked,
}
