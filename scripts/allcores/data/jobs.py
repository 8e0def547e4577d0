"""What the workflow has to know of the datasets and folds that its runs need."""

import shlex

from allcores.data import preparation
from allcores.machine import warm_start
from allcores.study import fingerprint, grid, registry

PROGRAMS = registry.LIBRARY.parent


class DataJobs:
    """The datasets and folds of a config as jobs, each asked for by the wildcards of its files.

    Args:
        config: the merged config.
        folder: its ResultsFolder.
        warm: the warm process that is asked for the programs, if any.
    """

    def __init__(self, config, folder, warm):
        self.config, self.folder, self.warm = config, folder, warm

    def choice(self, wildcards):
        return grid.choice(self.config, "datasets", wildcards.dataset)

    def settings(self, wildcards):
        return self.choice(wildcards).to_json()

    def code(self, wildcards):
        return fingerprint.of_dataset(self.choice(wildcards).name)

    def sources(self, wildcards):
        """A dataset made from files of the user's is made anew when one of them changes."""
        return preparation.sources(self.choice(wildcards))

    def preparing(self, wildcards, input):
        """The call of scripts/prepare_dataset.py, for the shell."""
        return self._call(
            "prepare_dataset.py",
            *["--settings", self.settings(wildcards)],
            *["--downloads", self.config.get("downloads", "results/downloads")],
            *["--output", self.folder.dataset(wildcards.dataset)],
        )

    def assigning(self, wildcards, output):
        """The call of scripts/assign_folds.py, for the shell."""
        return self._call(
            "assign_folds.py",
            *["--data", self.folder.dataset(wildcards.dataset)],
            *["--folds", wildcards.folds],
            *["--seed", wildcards.seed],
            *(["--inner", wildcards.inner] if hasattr(wildcards, "inner") else []),
            *["--output", output[0]],
        )

    def _call(self, program, *arguments):
        words = [*warm_start.command(PROGRAMS / program, self.warm), *arguments]
        return shlex.join(map(str, words))
