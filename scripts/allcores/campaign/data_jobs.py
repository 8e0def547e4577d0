"""What the rules of data.smk call: the datasets and folds of runs, made once and kept intact.

If Snakemake made them again, it would train all runs again. So where they are damaged or gone and
there are results, they are made again while it builds its graph: with the same content, and older
than all that was made from them.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from allcores.campaign import commands
from allcores.campaign import snakemake_internals as internals
from allcores.data import folds, preparation, storage
from allcores.data.folds import Assignable
from allcores.machine.warm_start import PANDAS
from allcores.study import fingerprint, grid
from allcores.study.run import folds_file

FILES = ("inputs.npy", "targets.npy", "dataset.json")
# The time of a dataset that was made again: before anything that was made from it.
LONG_AGO = 1_000_000_000  # seconds since 1970


class DataJobs:
    """The datasets and folds of a config as jobs, looked up by the wildcards of their files.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.folder = call, call.merged_config, call.folder
        self.datasets = {}  # label -> the sound storage.Dataset, or None

    def choice(self, label):
        return grid.choice(self.config, "datasets", label)

    def settings(self, wildcards):
        return self.choice(wildcards.dataset).to_json()

    def code(self, wildcards):
        return fingerprint.of_dataset(self.choice(wildcards.dataset).name)

    def sources(self, wildcards):
        """A digest of the user's files a dataset is made from; it is made again if they change."""
        return preparation.sources(self.choice(wildcards.dataset))

    def check_dataset(self, wildcards):
        """No input; ensures that a dataset is still the one that results were made from.

        One that was made from other files, options or code is made again, whether or not
        Snakemake has a record of that.
        """
        self.dataset(wildcards.dataset)
        return []

    def check_folds(self, wildcards):
        """No input; as check_dataset(), for the folds of a dataset."""
        file = Path(self._folds_file(wildcards))
        dataset = self.dataset(wildcards.dataset)
        if dataset is None:
            return []
        inner = int(getattr(wildcards, "inner", 0))
        problem = _problem_of_folds(file, dataset)
        if not problem or not (file.exists() or self._were_cut(wildcards)):
            return []
        if not self._has_results(wildcards.dataset):
            if file.exists():
                internals.force(self.call.workflow, [str(file)])
        elif self._mends(problem):
            count, seed = int(wildcards.folds), int(wildcards.seed)
            folds.write(file, Assignable.of(dataset), count, inner, seed)
            place = file.parent
            latest = max((place / name).stat().st_mtime for name in FILES)
            os.utime(file, (latest, latest))
        return []

    def dataset(self, label):
        """The prepared dataset of a label, mended if necessary; None: Snakemake makes it."""
        if label not in self.datasets:
            self.datasets[label] = self._sound_dataset(label)
        return self.datasets[label]

    def _sound_dataset(self, label):
        place, choice = Path(self.folder.dataset(label)), self.choice(label)
        if not self.call.is_main:
            return None
        try:
            dataset = storage.open_dataset(place)
        except ValueError as error:
            if not self._has_results(label):
                if place.exists():
                    internals.force(self.call.workflow, [f"{place}/{name}" for name in FILES])
                return None
            if not self._mends(str(error)):
                return None
            if subprocess.run(shlex.split(self._prepare_command(label, None))).returncode:
                return None  # the rule's log will say why
            for name in FILES:
                os.utime(place / name, (LONG_AGO, LONG_AGO))
            return storage.open_dataset(place)
        if dataset.info["made_from"] != preparation.made_from(choice):
            internals.force(self.call.workflow, [f"{place}/{name}" for name in FILES])
            return None
        return dataset

    def _were_cut(self, wildcards):
        """Whether results were made from that number of folds of a dataset."""
        runs = Path(self.folder.run(wildcards.dataset))
        return any(runs.rglob(f"fold*of{wildcards.folds}*/*/metrics.json"))

    def _has_results(self, label):
        """Whether there are results of a dataset, which Snakemake would train again after it."""
        return any(Path(self.folder.run(label)).rglob("metrics.json"))

    def _mends(self, problem):
        """Print a problem; returns whether this call mends it now: not in a dry run."""
        problem = problem.partition(". Delete")[0]
        if internals.is_dry_run(self.call.workflow):
            print(
                f"{problem}. It will be made again; that trains nothing if its files have not "
                "changed, in spite of the list below",
                file=sys.stderr,
            )
            return False
        print(f"{problem}. It is made again", file=sys.stderr, flush=True)
        return True

    def prepare_command(self, wildcards, input):
        """The call of scripts/prepare_dataset.py, for the shell."""
        return self._prepare_command(wildcards.dataset, self.call.warm(PANDAS))

    def _prepare_command(self, label, warm):
        return commands.of_program(
            "prepare_dataset.py",
            warm,
            *["--settings", self.choice(label).to_json()],
            *["--downloads", self.config["downloads"]],
            *["--output", self.folder.dataset(label)],
        )

    def assign_command(self, wildcards, output):
        """The call of scripts/assign_folds.py, for the shell."""
        return commands.of_program(
            "assign_folds.py",
            self.call.warm(PANDAS),
            *["--data", self.folder.dataset(wildcards.dataset)],
            *["--folds", wildcards.folds],
            *["--seed", wildcards.seed],
            *(["--inner", wildcards.inner] if hasattr(wildcards, "inner") else []),
            *["--output", output[0]],
        )

    def _folds_file(self, wildcards):
        name = folds_file(wildcards.folds, wildcards.seed, getattr(wildcards, "inner", None))
        return f"{self.folder.dataset(wildcards.dataset)}/{name}"


def _problem_of_folds(file, dataset):
    """Why a file of folds cannot be used; None: it can."""
    try:
        folds.read(file, Assignable.of(dataset))
    except (ValueError, OSError) as error:
        return str(error)
    return None
