"""Where the results of a config lie, and what is there."""

import atexit
import dataclasses
import functools
import json
import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from allcores import files
from allcores.files import KeptDigests, read_json, write_text
from allcores.study.run import PATH, digest

# What else lies in results/.
RESERVED = ("bench", "by_hand", "default", "downloads")
# What lies in the results of a config.
PARTS = (
    "calls",
    "checkpoints",
    "configs",
    "data",
    "logs",
    "plan",
    "recipes",
    "runs",
    "selections",
    "studies",
)
# The file in a results folder that names the config files it belongs to.
ORIGIN = "config.txt"
# How the name of every file of a checkpoint ends.
SUFFIX = ".allcores"
# What a run ends with.
RUN_FILES = ("metrics.json", "epochs.csv", "utilisation.csv", "predictions.parquet", "weights.pt")


@dataclass(frozen=True)
class ResultsFolder:
    """The folder of the results of one config, as the workflow has it.

    Attributes:
        path: relative to the working directory: "results/default".
    """

    path: str

    def config(self, config):
        """The file of a whole config, with what --config gave: another config is another file."""
        return f"{self.path}/configs/{digest(json.dumps(config))}.json"

    @property
    def tried_out(self):
        """The file of what was counted when models were tried out, see preflight."""
        return f"{self.path}/tried_out.json"

    @property
    def recipe(self):
        """The file of what was measured for runs with `auto`, with wildcards."""
        return f"{self.path}/recipes/{{dataset}}/{{model}}_{{measured}}.json"

    def planned(self, name):
        """A file or folder of what was planned before runs were trained."""
        return f"{self.path}/plan/{name}"

    def called(self, name):
        """A file or folder of what a call of snakemake writes down when it begins."""
        return f"{self.path}/calls/{name}"

    def log(self, run):
        """The log of a training."""
        return f"{self.path}/logs/train/{run.path}.log"

    def run(self, path=PATH):
        return f"{self.path}/runs/{path}"

    def has(self, path):
        """Whether the results of a run are there."""
        return all(Path(self.run(path), file).exists() for file in RUN_FILES)

    def damaged(self, path):
        """A file of a run's results, all of them there, that it has not written so; None: none."""
        place, digests = Path(self.run(path)), self.digests
        try:
            written = digests.of(place / "metrics.json")
        except (ValueError, KeyError):
            return place / "metrics.json"
        wrong = [place / name for name in written if digests.of(place / name) != written[name]]
        return wrong[0] if wrong else None

    @property
    def digests(self):
        """KeptDigests of the files in it; that of a metrics.json is the digests noted there."""
        return _digests(self.path)

    def without_missing(self, table):
        """A grid.Table without the runs that have no results, and without what depends on them."""
        lost = {path for path in self.wanted(table) if not self.has(path)}
        unmade = [
            path
            for path, each in table.selections.items()
            if not self.chosen(each) or not lost.isdisjoint(self._wanted(each))
        ]
        return table.without(lost, unmade)

    def data(self, run):
        return self.dataset(run.dataset.label)

    def dataset(self, label):
        """The folder of a prepared dataset."""
        return f"{self.path}/data/{label}"

    def checkpoints(self, run):
        whole = dataclasses.replace(run, stop_after=None)  # goes on where the others stop
        return f"{self.path}/checkpoints/{whole.path}"

    def discard_checkpoints(self, run):
        """Delete those of a run that nobody goes on with, unless somebody does."""
        lock = Path(self.checkpoints(run), f"lock{SUFFIX}")
        if not lock.exists():
            return
        with lock.open("r+") as file:
            try:
                files.hold(file, wait=False)
            except BlockingIOError:  # another study has kept it
                return
            for each in lock.parent.glob(f"*{SUFFIX}"):
                each.unlink()
            lock.parent.rmdir()

    @property
    def slurm_logs(self):
        """The folder of what jobs say to SLURM, beside their own logs."""
        return f"{self.path}/logs/slurm"

    def selection(self, path="{selection}"):
        """The file that says which candidate was chosen, by the path of the Selection."""
        return f"{self.path}/selections/{path}.json"

    def kept(self, selection):
        """The labels of the candidates that go on after a Selection; None: that is not known
        yet."""
        try:
            kept = read_json(self.selection(selection.path))["kept"]
            return kept if set(kept) <= set(selection.final) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def chosen(self, selection):
        """The path of the run that is final in a Selection; None: that is not known yet."""
        kept = self.kept(selection)
        return selection.final[kept[0]] if kept else None

    def scored(self, selection):
        """Label -> paths of the inner runs of the candidates that a Selection is between: all,
        or those that the one before has kept; None: that is not known yet."""
        if not selection.before:
            return selection.inner
        kept = self.kept(selection.before)
        return kept and {label: selection.inner[label] for label in kept}

    def lost(self, table):
        """Paths of the runs that selections have asked for and that have no results any more."""
        asked = []
        for selection in table.choices.values():
            asked += chain(*(self.scored(selection) or {}).values())
            asked += [self.chosen(selection)] if not selection.above else []
        return [path for path in dict.fromkeys(asked) if path and not self.has(path)]

    def wanted(self, table):
        """Paths of the runs of a grid.Table that are to be trained; where a choice is not made yet,
        the first candidates stand for those that will be."""
        selected = [path for each in table.selections.values() for path in self._wanted(each)]
        return list(dict.fromkeys([*table.asked, *selected]))

    def _wanted(self, selection):
        for each in selection.rungs:
            yield from chain(*(self.scored(each) or each.first_inner).values())
        yield self.chosen(selection) or next(iter(selection.final.values()))

    def study(self, name):
        return f"{self.path}/studies/{name}"

    def csv(self, study, name):
        """A tidy CSV or a table of a study."""
        return f"{self.study(study)}/{name}.csv"

    def inputs_of(self, run):
        """Name -> file of all that has to be there before a Run begins."""
        found = {"info": f"{self.data(run)}/dataset.json"}
        if run.folds_file:
            found["folds"] = f"{self.data(run)}/{run.folds_file}"
        if run.has_auto:
            found["recipe"] = self.recipe.format(**run.wildcards, measured=run.measured)
        return found

    def conditions_of(self, run, table):
        """The Conditions that a Run of a grid.Table is to be made under."""
        return table.conditions[run.path].after(self.run(run.path))


@functools.cache
def _digests(folder):
    """Those of results and reports, kept for the next call."""
    digests = KeptDigests(Path(folder) / "digests.json", _digest)
    atexit.register(digests.save)
    return digests


def _digest(path):
    return read_json(path)["files"] if Path(path).name == "metrics.json" else files.sha256(path)


def name_of(files, project):
    """The name of a config, under which its results lie in results/.

    It is the name of its file without the suffix, with the folders below `config`, if it lies in
    one of that name: "mine" for mine.yaml, config/mine.yaml and /home/me/study/mine.yaml,
    "miniature/kfold" for config/miniature/kfold.yaml; "default" for the project's own config, and
    for one of no file, as a workflow may give it to this one as its module. Of several files it is
    their names with a + between.

    Args:
        files: the config's.
        project: the folder of the project.

    Raises:
        ValueError: something else lies under that name, or it is no name for a folder.
    """
    default = Path(project).resolve() / "config" / "config.yaml"
    if not files or [Path(file).resolve() for file in files] == [default]:
        return "default"
    name = "+".join(_name_of_file(Path(file).absolute()) for file in files)
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


def _name_of_file(file):
    below = file.parts[:-1]
    if "config" in below:
        last = len(below) - 1 - below[::-1].index("config")
        return "/".join([*below[last + 1 :], file.stem])
    return file.stem


def note_origin(files, folder):
    """Write down in a folder of results of which config they are."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder) / ORIGIN, _origin(files))


def _origin(files):
    return "\n".join(os.path.relpath(file) for file in files)


def foreign(files, folder):
    """[a finding] if a folder holds the results of other files of the same name, else [].

    For instance, mine.yaml and config/mine.yaml share a name.
    """
    known, here = Path(folder) / ORIGIN, _origin(files)
    there = known.read_text(errors="replace") if known.exists() else here
    if there == here:
        return []
    return [
        f"{folder} holds the results of {there!r}; this call is of {here!r}: give the "
        f"file another name, or delete {known} if it is the same study"
    ]
