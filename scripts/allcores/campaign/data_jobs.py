"""What the rules of data.smk call: datasets and folds."""

import functools
from pathlib import Path

from snakemake.io import ancient

from allcores.campaign import commands
from allcores.data import folds, preparation, storage
from allcores.data.folds import Assignable
from allcores.machine.warm_start import PANDAS
from allcores.study import fingerprint, grid
from allcores.study.run import folds_file

FILES = ("inputs.npy", "targets.npy", "dataset.json")


class DataJobs:
    """The datasets and folds of a config as jobs, looked up by the wildcards of their marks.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.folder = call, call.merged_config, call.folder

    def choice(self, label):
        return grid.choice(self.config, "datasets", label)

    def marks(self, run):
        """The marks of the data of a Run."""
        label = run.dataset.label
        found = [self.dataset_mark(label)]
        if run.folds_file:
            found.append(self.folds_mark(label, run.folds or 0, run.seed, run.inner_folds or 0))
        return [mark for mark in found if mark]

    @functools.cache  # noqa: B019
    def dataset_mark(self, label):
        """The mark of a dataset, see Call.mark()."""
        _, problem = self.judged(label)
        return self.call.mark(f"{self.folder.dataset(label)}/made", self.made_of(label), problem)

    @functools.cache  # noqa: B019
    def made_of(self, label):
        return preparation.made_of(self.choice(label))

    @functools.cache  # noqa: B019
    def judged(self, label):
        """(the storage.Dataset of a label, None) if it is valid, else (None, what is wrong)."""
        place = Path(self.folder.dataset(label))
        try:
            dataset = storage.open_dataset(place)
        except ValueError as error:
            return None, str(error) if any((place / name).exists() for name in FILES) else ""
        is_current = dataset.record.is_current(self.made_of(label))
        return (dataset, None) if is_current else (None, "")

    @functools.cache  # noqa: B019
    def folds_mark(self, label, count, seed, inner):
        """The mark of a file of folds, see Call.mark()."""
        file = Path(self.folder.dataset(label), folds_file(count, seed, inner))
        made_of = f"{self.made_of(label)} {fingerprint.of_folds()}"
        problem = self._wrong_with_folds(file, label, count, seed, inner)
        return self.call.mark(str(file.with_suffix("")), made_of, problem)

    def _wrong_with_folds(self, file, label, count, seed, inner):
        dataset, _ = self.judged(label)
        if dataset is None:
            return ""
        try:
            folds.read(file, Assignable.of(dataset), count, inner, seed)
        except ValueError as error:
            return str(error)
        except OSError:  # not assigned yet
            return ""
        return None

    def inputs_of_folds(self, wildcards):
        """The dataset; a job of a cluster finds it there."""
        mark = self.dataset_mark(wildcards.dataset) if self.call.is_main else None
        return [ancient(mark)] if mark else []

    def prepare_command(self, wildcards, output):
        """The call of scripts/prepare_dataset.py, for the shell."""
        return commands.of_program(
            "prepare_dataset.py",
            self.call.warm(PANDAS),
            *["--settings", self.choice(wildcards.dataset).to_json()],
            *["--downloads", self.config["downloads"]],
            *["--output", self.folder.dataset(wildcards.dataset)],
            *["--mark", output[0]],
        )

    def assign_command(self, wildcards, output):
        """The call of scripts/assign_folds.py, for the shell."""
        count, seed = int(wildcards.folds), int(wildcards.seed)
        inner, place = int(getattr(wildcards, "inner", 0)), self.folder.dataset(wildcards.dataset)
        return commands.of_program(
            "assign_folds.py",
            self.call.warm(PANDAS),
            *["--data", place],
            *["--folds", count],
            *["--seed", seed],
            *(["--inner", inner] if inner else []),
            *["--output", f"{place}/{folds_file(count, seed, inner)}"],
            *["--mark", output[0]],
        )
