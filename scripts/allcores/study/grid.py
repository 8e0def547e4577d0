"""From a config to the table of runs. No torch here: the Snakefile imports this."""

import dataclasses
import itertools
from dataclasses import dataclass, field

from allcores.study import candidates, registry
from allcores.study.conditions import Conditions
from allcores.study.run import ADDITIONS, AUTO, Choice, Run

# What a study may leave out.
STUDY_DEFAULTS = {
    "schedules": ["constant"],
    "strategies": ["serial"],
    "workers": [1],
    "nodes": [1],
    "threads_per_worker": [1],
    "seeds": [0],
    "train_sizes": ["all"],
    "curves": False,
    "exclusive": False,
    "oversubscribe": False,
}
# The key of a study with `auto` for what was chosen, which no config has: dataset -> model ->
# {strategy, workers, servers, threads}; see planning/choose.py.
CHOSEN = "chosen"
# The key of a config for the candidates of its sweeps, which no file has: label of each ->
# {"family": the label in the file, "values": {key: value}}; see sweeps.py.
SWEPT = "swept"
# What a model's entry says of its training; its other keys are options of the model itself.
HYPERPARAMETERS = {
    "batch_size",
    "epochs",
    "optimizer",
    "loss",
    "augmentation",
    *ADDITIONS,
    "precision",
    "memory_format",
}
# The loss of a model that has none: by whether the targets of the dataset are numbers.
LOSSES = {False: {"name": "CrossEntropyLoss"}, True: {"name": "MSELoss"}}
# What a config says of all models' recipes -> their defaults.
RECIPE_DEFAULTS = {
    AUTO: {"precision": AUTO, "memory_format": AUTO},
    "fixed": {"precision": "fp32", "memory_format": "contiguous"},
}


@dataclass(frozen=True)
class Table:
    """What a config asks for.

    Attributes:
        runs: path -> Run; what several studies ask for stands here once.
        studies: name of a study -> paths of its runs.
        conditions: path of each run -> the Conditions that are asked of it by any study.
        oversubscribe: paths of the runs that may have more processes than there are cores.
        missing: name of a study -> paths of the runs that it has to do without.
        selections: path of each Selection, below the study, on the last rung -> it. A study that
            selects asks for the inner runs of the first rung only: which others are trained is
            known when those are scored.
    """

    runs: dict
    studies: dict
    conditions: dict
    oversubscribe: frozenset = frozenset()
    missing: dict = field(default_factory=dict)
    selections: dict = field(default_factory=dict)

    @property
    def choices(self):
        """Path -> Selection, on every rung."""
        return {rung.path: rung for each in self.selections.values() for rung in each.rungs}

    def selections_of(self, study):
        """The Selections of a study."""
        return [each for each in self.selections.values() if each.study == study]

    @property
    def exclusive(self):
        """Paths of the runs that must have the machine to themselves."""
        return [path for path in self.runs if self.conditions[path].exclusive]

    @property
    def asked(self):
        """Paths of the runs that are to be trained in any case."""
        return list(dict.fromkeys(path for paths in self.studies.values() for path in paths))

    def of(self, study):
        return [self.runs[path] for path in self.studies[study]]

    def without(self, paths, selections):
        """The Table without those runs and Selections, and without studies of which nothing is
        left.

        Args:
            paths: of runs of studies that do not select.
            selections: paths of Selections.
        """
        gone, unmade = set(paths), set(selections)
        left = {path: each for path, each in self.selections.items() if path not in unmade}
        selecting = {each.study for each in self.selections.values()}
        studies, missing = {}, {}
        for name, asked in self.studies.items():
            if name in selecting:
                firsts = [each.rungs[0] for each in left.values() if each.study == name]
                studies[name] = [
                    path for each in firsts for paths in each.inner.values() for path in paths
                ]
                missing[name] = [p for p in unmade if self.selections[p].study == name]
            else:
                studies[name] = [path for path in asked if path not in gone]
                missing[name] = [path for path in asked if path in gone]
        return dataclasses.replace(
            self,
            studies={name: paths for name, paths in studies.items() if paths},
            selections=left,
            missing=missing,
        )

    def to_plan(self):
        """The Table of what will be trained as far as can be known: the first of the candidates
        stand for whichever will be chosen."""
        studies = {name: list(paths) for name, paths in self.studies.items()}
        for each in self.selections.values():
            for rung in each.rungs[1:]:
                studies[each.study] += itertools.chain(*rung.first_inner.values())
            studies[each.study].append(next(iter(each.final.values())))
        asked = {path for paths in studies.values() for path in paths}
        runs = {path: run for path, run in self.runs.items() if path in asked}
        return dataclasses.replace(self, runs=runs, studies=studies)

    def turns(self):
        """Path of each exclusive run -> its position in the order of execution, from 0.

        Seeds and folds are the outermost loops, so that the repeats of a cell are far apart and a
        drift of the machine's speed affects all cells alike.
        """
        paths = sorted(
            self.exclusive, key=lambda path: (self.runs[path].seed, self.runs[path].fold or 0)
        )
        return {path: turn for turn, path in enumerate(paths)}

    def wildcards(self):
        """Name of each wildcard of a run's path -> its values."""
        values = [run.wildcards for run in self.runs.values()]
        return {name: sorted({str(v[name]) for v in values}) for name in values[0]}


def expand(config):
    """The Table of a config that checks.findings() has nothing to say against."""
    runs, studies, selections = {}, {}, {}
    conditions, oversubscribe = {}, set()
    for name, study in config["studies"].items():
        study = STUDY_DEFAULTS | study
        of_study = {run.path: run for run in _cells(config, study)}
        studies[name] = list(of_study)
        if "select" in study:
            found, first, inner = candidates.of_study(name, study, of_study, config.get(SWEPT, {}))
            selections |= found
            studies[name] = first
            of_study |= inner
        runs |= of_study
        oversubscribe |= set(of_study) if study["oversubscribe"] else set()
        for path in of_study:
            of_others = conditions.get(path, Conditions())
            conditions[path] = Conditions(
                of_others.curves or study["curves"], of_others.exclusive or study["exclusive"]
            )
    return Table(runs, studies, conditions, frozenset(oversubscribe), selections=selections)


def _cells(config, study):
    """The runs of one study, folds innermost."""
    folds = None if study["folds"] == "test" else study["folds"]
    recipe = RECIPE_DEFAULTS[config.get("recipe", AUTO)]
    grid = (
        (dataset, model, *rest)
        for dataset, model in itertools.product(study["datasets"], study["models"])
        for rest in itertools.product(
            [choice(config, "schedules", label) for label in study["schedules"]],
            layouts(config, study, dataset, model),
            study["train_sizes"],
            study["seeds"],
            [None] if folds is None else range(folds),
        )
    )
    for dataset, model, schedule, layout, size, seed, fold in grid:
        strategy, nodes, workers, servers, threads = layout
        chosen = choice(config, "datasets", dataset)
        yield Run(
            dataset=chosen,
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
            **training(model, recipe | config["models"][model], chosen),
        )


def layouts(config, study, dataset=None, model=None):
    """(strategy, nodes, workers, servers, threads per worker) of each layout in a study.

    With `auto` it is the one that was chosen for a dataset and a model, or all of those; none, if
    none was chosen yet.

    A study's workers are those of each node, a layout's those of all. A strategy that takes only
    one worker is listed once for all numbers of workers and nodes. One that takes
    an option `servers` has as many server processes. Where the study says `cores`, a strategy gets
    as many workers as they leave room for, or, if it takes only one, as many threads.
    """
    for label in study["strategies"]:
        if label == AUTO:
            yield from _chosen(config, study, dataset, model)
            continue
        strategy = choice(config, "strategies", label)
        component = registry.strategies()[strategy.name]
        servers = strategy.options.get("servers", component.options.get("servers", 0))
        one_worker = component.constants.get("one_worker")
        if "cores" in study:
            for cores in [1] if component.constants.get("reference") else study["cores"]:
                workers, threads = (1, cores) if one_worker else (cores - servers, 1)
                yield strategy, 1, workers, servers, threads
        else:
            counts = [[1], [1]] if one_worker else [node_counts(study), study["workers"]]
            grid = itertools.product(*counts, study["threads_per_worker"])
            for nodes, workers, threads in grid:
                yield strategy, nodes, nodes * workers, servers, threads


def _chosen(config, study, dataset, model):
    found = [
        (
            choice(config, "strategies", way["strategy"]),
            1,
            *(way[key] for key in ("workers", "servers", "threads")),
        )
        for of_dataset, of_models in study.get(CHOSEN, {}).items()
        for of_model, way in of_models.items()
        if dataset in (None, of_dataset) and model in (None, of_model)
    ]
    yield from {repr(layout): layout for layout in found}.values()


def strategies(config, study):
    """The Choices that a study trains with, those that were chosen for `auto` included."""
    found = [layout[0] for layout in layouts(config, STUDY_DEFAULTS | study)]
    return list({strategy.label: strategy for strategy in found}.values())


def node_counts(study):
    """A study's numbers of nodes; a single one need not be a list."""
    return study["nodes"] if isinstance(study["nodes"], list) else [study["nodes"]]


def choice(config, section, label):
    """The entry of that label; a built-in needs no entry."""
    entry = dict((config.get(section) or {}).get(label) or {})
    name = component_name(label, entry)
    entry.pop("name", None)
    return Choice(label, name, entry)


def component_name(label, entry):
    """The component that an entry for a dataset, schedule or strategy names."""
    name = entry.get("name", label)
    return registry.former_names().get(name, name)


def training(label, entry, dataset):
    """The fields of a Run that a model's entry decides, for the Choice of a dataset."""
    entry = {"loss": LOSSES[registry.is_regression(dataset)], "augmentation": {}} | entry
    options = {k: v for k, v in entry.items() if k not in HYPERPARAMETERS | {"name", "import"}}
    return {
        "model": Choice(label, model_name(label, entry), options),
        "optimizer": _torch_choice(entry["optimizer"], registry.optimizers()),
        "loss": _torch_choice(entry["loss"], registry.losses()),
        "crop": entry["augmentation"].get("crop", 0),
        "flip": entry["augmentation"].get("flip", False),
        **{key: entry[key] for key in ("batch_size", "epochs", "precision", "memory_format")},
        **{key: entry[key] for key in ADDITIONS if entry.get(key, True) is not True},
    }


def model_name(label, entry):
    """What a model's entry stands for: a built-in or an import path."""
    return entry.get("import") or entry.get("name", label)


def _torch_choice(entry, known):
    name = registry.canonical(entry["name"], known)
    return Choice(name, name, {k: v for k, v in entry.items() if k != "name"})
