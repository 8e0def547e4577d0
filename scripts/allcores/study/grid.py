"""From a config to the table of runs. No torch here: the Snakefile imports this."""

import dataclasses
import itertools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from allcores.study import registry
from allcores.study.run import Choice, Run, digest

# What else lies in results/.
RESERVED = ("bench", "by_hand", "default", "downloads")
# What lies in the results of a config.
PARTS = ("checkpoints", "data", "logs", "recipes", "runs", "studies")
# Says in a folder of results of which files they are.
ORIGIN = "config.txt"
# What a study may leave out.
STUDY_DEFAULTS = {
    "schedules": ["constant"],
    "strategies": ["serial"],
    "workers": [1],
    "threads_per_worker": [1],
    "seeds": [0],
    "train_sizes": ["all"],
    "curves": False,
    "exclusive": False,
    "oversubscribe": False,
}
# What a model's entry says of its training; its other keys are options of the model itself.
HYPERPARAMETERS = {
    "batch_size",
    "epochs",
    "optimizer",
    "loss",
    "augmentation",
    "precision",
    "memory_format",
}
MODEL_DEFAULTS = {
    "loss": {"name": "CrossEntropyLoss"},
    "augmentation": {},
    "precision": "fp32",
    "memory_format": "contiguous",
}


@dataclass(frozen=True)
class Table:
    """What a config asks for.

    Attributes:
        runs: path -> Run; what several studies ask for stands here once.
        studies: name of a study -> paths of its runs.
        exclusive: paths of the runs that must have the machine to themselves.
        oversubscribe: paths of those that may have more processes than there are cores.
        missing: name of a study -> paths of the runs that it has to do without.
    """

    runs: dict
    studies: dict
    exclusive: frozenset
    oversubscribe: frozenset
    missing: dict = field(default_factory=dict)

    def of(self, study):
        return [self.runs[path] for path in self.studies[study]]

    def without(self, paths):
        """The Table without those runs, and without studies of which nothing is left."""
        gone = set(paths)
        studies = {
            name: [path for path in all_paths if path not in gone]
            for name, all_paths in self.studies.items()
        }
        return dataclasses.replace(
            self,
            runs={path: run for path, run in self.runs.items() if path not in gone},
            studies={name: left for name, left in studies.items() if left},
            missing={
                name: [path for path in all_paths if path in gone]
                for name, all_paths in self.studies.items()
            },
        )

    def turns(self):
        """Path of each exclusive run -> when its turn is: 0 for the first.

        Folds and seeds outermost, so that the repeats of a cell lie far apart and a machine whose
        speed drifts is as slow for one cell as for the others.
        """
        paths = [path for path in self.runs if path in self.exclusive]
        paths.sort(key=lambda path: (self.runs[path].seed, self.runs[path].fold or 0))
        return {path: turn for turn, path in enumerate(paths)}

    def wildcards(self):
        """Name of each wildcard of a run's path -> its values."""
        values = [run.wildcards for run in self.runs.values()]
        return {name: sorted({str(v[name]) for v in values}) for name in values[0]}


def name_of(files, project):
    """The name of a config, under which its results lie: the path of its file without the suffix.

    Args:
        files: the config's; several make one name. Those in config/ of the project or of the
            working directory are named from there on.
        project: the folder of the project.

    Returns:
        "default" for the project's own config, "mine" for config/mine.yaml, "miniature/kfold".

    Raises:
        ValueError: something else lies under that name, or it is no name for a folder.
    """
    default = Path(project).resolve() / "config" / "config.yaml"
    if [Path(file).resolve() for file in files] == [default]:
        return "default"
    name = "+".join(_name_of_file(Path(file).resolve(), Path(project).resolve()) for file in files)
    first, *inner = name.split("/")
    if (
        first in RESERVED
        or set(inner) & set(PARTS)
        or not re.fullmatch(r"(\w[\w.+-]*/)*\w[\w.+-]*", name)
    ):
        raise ValueError(
            f"{', '.join(map(str, files))}: its results would lie in results/{name}; expected a "
            "file name that begins with a letter or digit and has letters, digits, _, -, + and . "
            f"only, which is none of {', '.join((*RESERVED, *PARTS))}"
        )
    return name


def note_origin(files, folder):
    """Write down in a folder of results of which config they are."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / ORIGIN).write_text(_origin(files))


def _origin(files):
    return "\n".join(os.path.relpath(file) for file in files)


def origin_of(files, folder):
    """What is wrong if a folder holds results of other files of the same name; None: nothing.

    mine.yaml and config/mine.yaml are such.
    """
    known, here = Path(folder) / ORIGIN, _origin(files)
    if known.exists() and known.read_text() != here:
        return (
            f"{folder} holds the results of {known.read_text()!r}; this call is of {here!r}: give "
            f"the file another name, or delete {known} if it is the same study"
        )
    return None


def _name_of_file(file, project):
    for folder in (Path.cwd() / "config", Path.cwd(), project / "config", project):
        if file.is_relative_to(folder):
            return file.relative_to(folder).with_suffix("").as_posix()
    return f"{file.stem}_{digest(str(file))}"


def expand(config):
    """The Table of a config that checks.findings() has nothing to say against."""
    runs, studies, exclusive, oversubscribe = {}, {}, set(), set()
    for name, study in config["studies"].items():
        study = STUDY_DEFAULTS | study
        cells = list(_cells(config, study))
        for run in cells:
            known = runs.setdefault(run.path, run)
            if run.curves and not known.curves:
                runs[run.path] = run
        studies[name] = [run.path for run in cells]
        exclusive |= set(studies[name]) if study["exclusive"] else set()
        oversubscribe |= set(studies[name]) if study["oversubscribe"] else set()
    return Table(runs, studies, frozenset(exclusive), frozenset(oversubscribe))


def _cells(config, study):
    """The runs of one study, folds innermost."""
    folds = None if study["folds"] == "test" else study["folds"]
    grid = itertools.product(
        [choice(config, "datasets", label) for label in study["datasets"]],
        study["models"],
        [choice(config, "schedules", label) for label in study["schedules"]],
        ways(config, study),
        study["train_sizes"],
        study["seeds"],
        [None] if folds is None else range(folds),
    )
    for dataset, model, schedule, (strategy, workers, servers, threads), size, seed, fold in grid:
        yield Run(
            dataset=dataset,
            schedule=schedule,
            strategy=strategy,
            folds=folds,
            fold=fold,
            train_size=None if size == "all" else size,
            workers=workers,
            servers=servers,
            threads_per_worker=threads,
            seed=seed,
            curves=study["curves"],
            **training(model, config["models"][model]),
        )


def ways(config, study):
    """(strategy, workers, servers, threads per worker) of each way of using the cores in a study.

    A strategy that takes only one worker is listed once for all numbers of workers. One that takes
    an option `servers` has as many server processes. Where the study says `cores`, a strategy gets
    as many workers as they leave room for, or, if it takes only one, as many threads.
    """
    for label in study["strategies"]:
        strategy = choice(config, "strategies", label)
        component = registry.strategies()[strategy.name]
        servers = strategy.options.get("servers", component.options.get("servers", 0))
        one_worker = component.constants.get("one_worker")
        if "cores" in study:
            for cores in [1] if component.constants.get("reference") else study["cores"]:
                workers, threads = (1, cores) if one_worker else (cores - servers, 1)
                yield strategy, workers, servers, threads
        else:
            counts = [1] if one_worker else study["workers"]
            for workers, threads in itertools.product(counts, study["threads_per_worker"]):
                yield strategy, workers, servers, threads


def choice(config, section, label):
    """The entry of that label; a built-in needs no entry."""
    entry = dict((config.get(section) or {}).get(label) or {})
    return Choice(label, entry.pop("name", label), entry)


def training(label, entry):
    """The fields of a Run that a model's entry decides."""
    entry = MODEL_DEFAULTS | entry
    options = {k: v for k, v in entry.items() if k not in HYPERPARAMETERS | {"name", "import"}}
    return {
        "model": Choice(label, model_name(label, entry), options),
        "optimizer": _torch_choice(entry["optimizer"], registry.optimizers()),
        "loss": _torch_choice(entry["loss"], registry.losses()),
        "batch_size": entry["batch_size"],
        "epochs": entry["epochs"],
        "crop": entry["augmentation"].get("crop", 0),
        "flip": entry["augmentation"].get("flip", False),
        "precision": entry["precision"],
        "memory_format": entry["memory_format"],
    }


def model_name(label, entry):
    """What a model's entry stands for: a built-in or an import path."""
    return entry.get("import") or entry.get("name", label)


def _torch_choice(entry, known):
    name = registry.canonical(entry["name"], known)
    return Choice(name, name, {k: v for k, v in entry.items() if k != "name"})
