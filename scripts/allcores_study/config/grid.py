"""From a config to the table of runs. No torch here: the Snakefile imports this."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from allcores_study.config import candidates, component, registry, scoring, settings
from allcores_study.config.run import ADDITIONS, Conditions, Entry, Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    # Strategy, nodes, workers, servers, threads per worker: see layouts().
    Layout = tuple[Entry, int, int, int, int]

# What the name of the study of final runs, which `final: true` adds, ends with, as no label does;
# and what it has in place of folds.
FINAL, NOTHING_HELD_OUT = "+final", "none"
# The keys of a config that apply to models whose entry lacks them.
FOR_ALL_MODELS = ("precision", "memory_format")
# The constant of a built-in model's file that says in which format it is trained by default.
MEMORY_FORMAT = "MEMORY_FORMAT"
# The keys of a model's entry about its training; other keys are options of the model itself.
HYPERPARAMETERS = {
    "batch_size",
    "epochs",
    "optimizer",
    "loss",
    "augmentation",
    *ADDITIONS,
    *FOR_ALL_MODELS,
}
# The key under which an entry may set options of the model itself, whatever their names.
OPTIONS = "options"
SAMPLE = "sample"  # how many candidates to draw, see sweeps
BUILT_IN_AUGMENTATION = ("crop", "flip")
# An estimator trains itself, once: as one process, without batches and without a schedule.
OF_ESTIMATOR = {
    "optimizer": None,
    "batch_size": None,
    "epochs": 1,
    "crop": 0,
    "flip": False,
    "precision": "fp32",
    "memory_format": "contiguous",
}
# The keys of an estimator's entry that are not its own options.
ESTIMATOR_KEYS = ("name", "import", SAMPLE)
NO_SCHEDULE, SERIAL = Entry("none", "constant", {}), Entry("serial", "serial", {})


@dataclass(frozen=True)
class Table:
    """The runs and studies of a config.

    Attributes:
        runs: path -> Run; a run of several studies is here once.
        studies: name of a study -> paths of its runs. The final runs of a study are a study of
            their own, see FINAL.
        conditions: path of each run -> its Conditions, the strictest of all studies.
        oversubscribe: paths of the runs that may have more processes than there are cores.
        families: label of each candidate of a sweep -> label of the swept model.
        missing: name of a study -> paths of the runs that it lacks.
        selections: path of each chosen run -> the Selection that its job makes. In `runs`, the
            first candidate stands in for the one that will be chosen.
    """

    runs: dict[str, Run]
    studies: dict[str, list[str]]
    conditions: dict[str, Conditions]
    oversubscribe: frozenset[str] = frozenset()
    families: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    selections: dict[str, candidates.Selection] = field(default_factory=dict)

    def family(self, run: Run) -> str:
        """Return the label of a Run's model in the config: for a candidate, that of its sweep."""
        return self.families.get(run.model.label, run.model.label)

    def claimed_cores(self, path: str, available: int | None) -> int:
        """Return how many cores a run keeps others from; all of a node, if it is exclusive."""
        is_alone = self.conditions[path].exclusive and available
        return available if is_alone else self.runs[path].cores  # type: ignore[return-value]

    @property
    def reported(self) -> list[str]:
        """The names of the studies of the config, which have a report."""
        return [name for name in self.studies if not name.endswith(FINAL)]

    @functools.cached_property
    def selections_of_inner(self) -> dict[str, list[candidates.Selection]]:
        """Path of each inner run -> the Selections that compare it."""
        found: dict[str, list[candidates.Selection]] = {}
        for selection in self.selections.values():
            for path in selection.compared:
                found.setdefault(path, []).append(selection)
        return found

    def paths_of(self, study: str) -> list[str]:
        """Return the paths of a study's runs, with the inner runs of its Selections."""
        paths = self.studies[study]
        selections = (self.selections[path] for path in paths if path in self.selections)
        return [*dict.fromkeys(path for one in selections for path in one.compared), *paths]

    @property
    def exclusive(self) -> list[str]:
        """Paths of the runs that need the machine to themselves."""
        return [path for path in self.runs if self.conditions[path].exclusive]

    def of(self, study: str) -> list[Run]:
        return [self.runs[path] for path in self.studies[study]]

    def without(self, paths: Collection[str]) -> Table:
        """Return the Table whose studies lack the runs at some paths; those left empty are gone."""
        studies, missing = {}, {}
        for name, of_study in self.studies.items():
            studies[name] = [path for path in of_study if path not in paths]
            missing[name] = [path for path in of_study if path in paths]
        studies = {name: remaining for name, remaining in studies.items() if remaining}
        return dataclasses.replace(self, studies=studies, missing=missing)

    def turns(self) -> dict[str, int]:
        """Return the position of each exclusive run in the order of execution, from 0, by its path.

        Seeds and folds are the outermost loops, so that repeats of the same settings are far apart
        and a drift of the machine's speed affects all settings equally.
        """
        paths = sorted(
            self.exclusive, key=lambda path: (self.runs[path].seed, self.runs[path].fold or 0)
        )
        return {path: turn for turn, path in enumerate(paths)}

    def wildcards(self) -> dict[str, list[str]]:
        """Return the sorted values of each wildcard in run.PATH, by its name."""
        values = [run.wildcards for run in self.runs.values()]
        return {name: sorted({str(v[name]) for v in values}) for name in values[0]}


def expand(config: dict[str, Any]) -> Table:
    """Return the Table of a config in which checks.findings() has found nothing."""
    runs: dict[str, Run] = {}
    studies: dict[str, list[str]] = {}
    selections: dict[str, candidates.Selection] = {}
    conditions: dict[str, Conditions] = {}
    oversubscribe, alone = set(), set()
    families = {label: entry["family"] for label, entry in config.get(settings.SWEPT, {}).items()}
    for name, study in with_finals(config["studies"]):
        runs_of_study = {run.path: run for run in runs_of(config, study)}
        studies[name] = list(runs_of_study)
        if "select" in study:
            chosen, inner = selections_of(config, name, study, runs_of_study.values())
            first = {one.path: next(iter(one.outer.values())) for one in chosen}
            items = runs_of_study.items()
            others = {path: run for path, run in items if run.model.label not in families}
            studies[name] = [*first, *others]
            selections |= {one.path: one for one in chosen}
            runs_of_study = inner | first | others
        runs |= runs_of_study
        alone |= set(runs_of_study) if _are_timed(study, runs_of_study) else set()
        oversubscribe |= set(runs_of_study) if study["oversubscribe"] else set()
        for path in runs_of_study:
            combined = conditions.get(path, Conditions())
            conditions[path] = Conditions(
                combined.curves or study["curves"], combined.exclusive or study["exclusive"]
            )
    runs = {path: _not_stacked(run) if path in alone else run for path, run in runs.items()}
    for path in alone & selections.keys():
        outer = {label: _not_stacked(run) for label, run in selections[path].outer.items()}
        selections[path] = dataclasses.replace(selections[path], outer=outer)
    return Table(
        runs, studies, conditions, frozenset(oversubscribe), families, selections=selections
    )


def selections_of(
    config: dict[str, Any], name: str, study: dict[str, Any], runs: Iterable[Run]
) -> tuple[list[candidates.Selection], dict[str, Run]]:
    """Return (the Selections of a study with `select`, path -> Run of their inner runs).

    Args:
        name, study: as with_finals() yields them.
        runs: runs_of() the study.
    """
    families = {label: entry["family"] for label, entry in config.get(settings.SWEPT, {}).items()}
    swept = [run for run in runs if run.model.label in families]
    datasets = [labelled(config, "datasets", label) for label in study["datasets"]]
    metrics = scoring.metrics_of(study, datasets)
    return candidates.of_runs(name, swept, study["select"], metrics, families)


def with_finals(studies: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the settings of each study, and after it those of its final runs.

    These are one run per dataset, model and schedule: the first strategy, on all samples.
    """
    for name, entry in studies.items():
        study = settings.defaults(settings.Study) | entry
        yield name, study
        if study["final"]:
            listed = ("strategies", "workers", "threads_per_worker", "seeds", "cores")
            first = {key: study[key][:1] for key in listed if key in study}
            first |= {"nodes": node_counts(study)[:1], "folds": NOTHING_HELD_OUT}
            plain = {"train_sizes": ["all"], "curves": False, "exclusive": False}
            yield f"{name}{FINAL}", study | first | plain


def _are_timed(study: dict[str, Any], runs: dict[str, Run]) -> bool:
    """Return whether each run of a study has to be trained alone, not stacked with others.

    That is so if the study compares ways of using the cores, or times by the number of samples.
    """
    layouts = {(run.strategy.label, run.layout) for run in runs.values()}
    is_compared = len(layouts) > 1 or len(study["train_sizes"]) > 1
    return is_compared or study["exclusive"]


def _not_stacked(run: Run) -> Run:
    return dataclasses.replace(run, stacked=False) if run.processes == 1 else run


def runs_of(config: dict[str, Any], study: dict[str, Any]) -> Iterator[Run]:
    """Yield the runs of one study, with folds as the innermost loop."""
    is_final = study["folds"] == NOTHING_HELD_OUT
    folds = None if is_final or study["folds"] == "test" else study["folds"]
    schedules = [labelled(config, "schedules", label) for label in study["schedules"]]
    grid = (
        (dataset, model, *rest)
        for dataset, model in itertools.product(study["datasets"], study["models"])
        for rest in itertools.product(
            [NO_SCHEDULE] if component.is_estimator(config["models"][model]) else schedules,
            layouts(config, study, model),
            study["train_sizes"],
            study["seeds"],
            [None] if folds is None else range(folds),
        )
    )
    for dataset, model, schedule, layout, size, seed, fold in grid:
        strategy, nodes, workers, servers, threads = layout
        dataset_entry = labelled(config, "datasets", dataset)
        yield Run(
            dataset=dataset_entry,
            schedule=schedule,
            strategy=strategy,
            folds=folds,
            fold=fold,
            train_size=None if size == "all" else size,
            nodes=nodes,
            workers=workers,
            servers=servers,
            threads_per_worker=threads,
            seed=seed,
            final=is_final or None,
            **training(config, model, dataset_entry),
        )


def layouts(
    config: dict[str, Any], study: dict[str, Any], model: str | None = None
) -> Iterator[Layout]:
    """Yield (strategy, nodes, workers, servers, threads per worker) of each layout in a study.

    `workers` of a study counts each node, the workers of a layout all nodes. A strategy that takes
    only one worker is listed once for all numbers of workers and nodes. A strategy with an option
    `servers` has that many server processes. With `cores`, a strategy gets as many workers as fit
    on them, or as many threads if it takes only one worker. An estimator is a single process.
    """
    if model and component.is_estimator(config["models"][model]):
        counts: list[Any] = [1] if "cores" in study else study["threads_per_worker"]
        yield from ((SERIAL, 1, 1, 0, count) for count in counts)
        return
    for label in study["strategies"]:
        strategy = labelled(config, "strategies", label)
        found: Any = registry.strategies()[strategy.name]
        servers = strategy.options.get("servers", found.options.get("servers", 0))
        one_worker = found.constants.get("one_worker")
        if "cores" in study:
            for cores in [1] if found.constants.get("reference") else study["cores"]:
                workers, threads = (1, cores) if one_worker else (cores - servers, 1)
                yield strategy, 1, workers, servers, threads
        else:
            counts = [[1], [1]] if one_worker else [node_counts(study), study["workers"]]
            grid = itertools.product(*counts, study["threads_per_worker"])
            for nodes, workers, threads in grid:
                yield strategy, nodes, nodes * workers, servers, threads


def strategies(config: dict[str, Any], study: dict[str, Any]) -> list[Entry]:
    """Return the strategies of a study."""
    labelled = [layout[0] for layout in layouts(config, study)]
    return list({strategy.label: strategy for strategy in labelled}.values())


def node_counts(study: dict[str, Any]) -> list[int]:
    """Return a study's numbers of nodes as a list; the config may have a single number."""
    return study["nodes"] if isinstance(study["nodes"], list) else [study["nodes"]]


def labelled(config: dict[str, Any], section: str, label: str) -> Entry:
    """Return the Entry with a label in a section; a built-in component needs no entry."""
    entry = dict((config.get(section) or {}).get(label) or {})
    name = component_name(label, entry)
    entry.pop("name", None)
    return Entry(label, name, entry)


def component_name(label: str, entry: dict[str, Any]) -> str:
    """Return the component that an entry for a dataset, schedule or strategy names."""
    return entry.get("name", label)


def training(config: dict[str, Any], label: str, dataset: Entry) -> dict[str, Any]:
    """Return the fields of a Run that a model's entry decides.

    Args:
        label: of the model.
        dataset: decides the default loss.
    """
    entry = config["models"][label]
    loss = {"name": registry.task(dataset).constants["LOSS"]}
    if component.is_estimator(entry):
        options = {key: value for key, value in entry.items() if key not in ESTIMATOR_KEYS}
        path = model_name(label, entry)
        return OF_ESTIMATOR | {
            "model": Entry(label, path, options),
            "loss": _torch_entry(loss, registry.losses()),
        }
    format_of_file = registry.model(model_name(label, entry)).constants.get(MEMORY_FORMAT)
    entry = {
        "loss": loss,
        "augmentation": {},
        "precision": "fp32",
        "memory_format": format_of_file or "contiguous",
        **{key: config[key] for key in FOR_ALL_MODELS if key in config},
        **entry,
    }
    return {
        "model": Entry(label, model_name(label, entry), model_options(entry)),
        "optimizer": _torch_entry(entry["optimizer"], registry.optimizers()),
        "loss": _loss(entry["loss"]),
        "crop": entry["augmentation"].get("crop", 0),
        "flip": entry["augmentation"].get("flip", False),
        "augmentation": _own_augmentation(entry["augmentation"]),
        **{key: entry[key] for key in ("batch_size", "epochs", *FOR_ALL_MODELS)},
        **{key: entry[key] for key in ADDITIONS if key in entry},
    }


def model_options(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the model itself from its entry.

    Those under OPTIONS may have the names of other keys of an entry.
    """
    known = HYPERPARAMETERS | {"name", "import", OPTIONS, SAMPLE}
    own = {key: value for key, value in entry.items() if key not in known}
    return own | entry.get(OPTIONS, {})


def model_name(label: str, entry: dict[str, Any]) -> str:
    """Return the name of a built-in model, or an import path."""
    return entry.get("import") or entry.get("name", label)


def _loss(entry: dict[str, Any]) -> Entry:
    return _imported(entry) if "import" in entry else _torch_entry(entry, registry.losses())


def _own_augmentation(entry: dict[str, Any]) -> Entry | None:
    """Return the Entry of the user's own augmentation; None: there is none."""
    own = {key: value for key, value in entry.items() if key not in BUILT_IN_AUGMENTATION}
    return _imported(own) if "import" in own else None


def _imported(entry: dict[str, Any]) -> Entry:
    path = entry["import"]
    return Entry(path, path, {key: value for key, value in entry.items() if key != "import"})


def _torch_entry(entry: dict[str, Any], known: Iterable[str]) -> Entry:
    name = registry.canonical(entry["name"], known)
    return Entry(name, name, {k: v for k, v in entry.items() if k != "name"})  # type: ignore[arg-type]
