"""What the rules of data.smk call: datasets and folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snakemake.io import ancient

from allcores_study.campaign import commands
from allcores_study.config import grid
from allcores_study.config.run import folds_file

if TYPE_CHECKING:
    from snakemake.iocontainers import OutputFiles, Wildcards

    from allcores_study.campaign.call import Call


class DataJobs:
    """The datasets and folds of a config as jobs, looked up by the wildcards of their marks.

    Args:
        call: the invocation.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.config, self.folder = call, call.merged_config, call.folder

    def inputs_of_folds(self, wildcards: Wildcards) -> list[str]:
        """Return the mark of the dataset; [] in a job of a cluster, where the dataset exists."""
        mark = self.call.ledger.dataset(wildcards.dataset) if self.call.is_main else None
        return [ancient(mark)] if mark else []

    def prepare_command(self, wildcards: Wildcards, output: OutputFiles) -> str:
        """Return the command that runs scripts/prepare_dataset.py, for the shell."""
        return commands.of_program(
            "prepare_dataset.py",
            self.call.is_warm,
            *["--settings", grid.labelled(self.config, "datasets", wildcards.dataset).to_json()],
            *["--downloads", self.config["downloads"]],
            *["--output", self.folder.dataset(wildcards.dataset)],
            *["--mark", output[0]],
        )

    def assign_command(self, wildcards: Wildcards, output: OutputFiles) -> str:
        """Return the command that runs scripts/assign_folds.py, for the shell."""
        count, seed = int(wildcards.folds), int(wildcards.seed)
        inner, place = int(getattr(wildcards, "inner", 0)), self.folder.dataset(wildcards.dataset)
        return commands.of_program(
            "assign_folds.py",
            self.call.is_warm,
            *["--data", place],
            *["--folds", count],
            *["--seed", seed],
            *(["--inner", inner] if inner else []),
            *["--output", f"{place}/{folds_file(count, seed, inner)}"],
            *["--mark", output[0]],
        )
