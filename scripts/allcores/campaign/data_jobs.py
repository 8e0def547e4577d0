"""What the rules of data.smk call: datasets and folds, made where they are not valid."""

from pathlib import Path

from allcores.campaign import commands
from allcores.data import folds, preparation, storage
from allcores.data.folds import Assignable
from allcores.machine.warm_start import PANDAS
from allcores.study import grid
from allcores.study.run import folds_file

FILES = ("inputs.npy", "targets.npy", "dataset.json")


class DataJobs:
    """The datasets and folds of a config as jobs, looked up by the wildcards of their files.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.folder = call, call.merged_config, call.folder
        self.datasets, self.valid_folds = {}, {}  # see dataset() and folds()

    def choice(self, label):
        return grid.choice(self.config, "datasets", label)

    def dataset_inputs(self, wildcards):
        """No input. A dataset of something else, or damaged since, is made again."""
        self.dataset(wildcards.dataset)
        return []

    def folds_inputs(self, wildcards):
        """The dataset, if this call makes it. Folds that are not valid are assigned again."""
        inner = int(getattr(wildcards, "inner", 0))
        self.folds(wildcards.dataset, int(wildcards.folds), int(wildcards.seed), inner)
        return [*self.dataset_files(wildcards.dataset).values()]

    def dataset(self, label):
        """The valid storage.Dataset of a label; None: this call makes it."""
        if label not in self.datasets:
            self.datasets[label] = self._valid_dataset(label)
            if self.datasets[label] is None:
                self.call.make_again([f"{self.folder.dataset(label)}/{name}" for name in FILES])
        return self.datasets[label]

    def _valid_dataset(self, label):
        place = Path(self.folder.dataset(label))
        try:
            dataset = storage.open_dataset(place)
        except ValueError as error:
            if any((place / name).exists() for name in FILES):
                self.call.tell(error)
            return None
        is_current = dataset.record.is_current(preparation.made_of(self.choice(label)))
        return dataset if is_current and not self.call.is_forced("prepare_dataset") else None

    def files(self, run):
        """Name -> file of the data of a Run that this call makes; others are there and valid."""
        label = run.dataset.label
        files = self.dataset_files(label)
        if run.folds_file:
            made = self.folds(label, run.folds or 0, run.seed, run.inner_folds or 0)
            files |= {"folds": made[-1]} if made else {}
        return files

    def dataset_files(self, label):
        """Name -> file of a dataset that is not valid yet."""
        made = self.dataset(label) is None
        return {"info": f"{self.folder.dataset(label)}/dataset.json"} if made else {}

    def folds(self, label, count, seed, inner):
        """[] if a file of folds is valid, else what has to be made: the dataset, if it is not valid
        either, and the file."""
        key = label, count, seed, inner
        if key not in self.valid_folds:
            file = f"{self.folder.dataset(label)}/{folds_file(count, seed, inner)}"
            dataset = self.dataset(label)
            is_forced = self.call.is_forced("assign_inner_folds" if inner else "assign_folds")
            if dataset and not is_forced and self._are_valid(file, dataset, key):
                self.valid_folds[key] = []
            else:
                self.call.make_again([file])
                self.valid_folds[key] = [*self.dataset_files(label).values(), file]
        return self.valid_folds[key]

    def _are_valid(self, file, dataset, key):
        _, count, seed, inner = key
        try:
            folds.read(file, Assignable.of(dataset), count, inner, seed)
        except ValueError as error:
            self.call.tell(error)
            return False
        except OSError:  # not assigned yet
            return False
        return True

    def prepare_command(self, wildcards, input):
        """The call of scripts/prepare_dataset.py, for the shell."""
        return commands.of_program(
            "prepare_dataset.py",
            self.call.warm(PANDAS),
            *["--settings", self.choice(wildcards.dataset).to_json()],
            *["--downloads", self.config["downloads"]],
            *["--output", self.folder.dataset(wildcards.dataset)],
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
