"""The request to train a run: its data, its folders and how it is carried out."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from allcores.machine import leases
from allcores_study.config.run import Conditions, Run


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; nothing here changes its weights.

    Attributes:
        pinning: keep each process on its own cores, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        ends_process: whether this process ends with the run: signals are ignored once its results
            are written.
    """

    pinning: bool = True
    timeout: float = math.inf
    save_every: float = math.inf
    ends_process: bool = False

    def leased(self, run: Run) -> AbstractContextManager[list[int] | None]:
        """Return a context with the cores on this node that the run keeps to, or None."""
        return leases.leased(run.cores_on_node) if self.pinning else nullcontext()


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run to train and score.

    Attributes:
        run: has no `auto`.
        configured: the Run before its `auto` values were filled in; the same if it had none.
        data_folder: the prepared dataset.
        fold_file: the fold of each sample, from folds.write(); None: assign folds here.
        checkpoint_folder: folder of the checkpoints. They are deleted once the results are written,
            unless another run continues from them (`stop_after`).
        output: folder for results_folder.RUN_FILES.
        execution: how it is carried out.
        conditions: what is scored and how it is measured.
        cores_of_call: number of cores onto which Snakemake packs the runs of this invocation; None:
            the cores that this process may use.
    """

    run: Run
    configured: Run
    data_folder: Path
    checkpoint_folder: Path
    output: Path
    fold_file: Path | None = None
    execution: Execution = field(default_factory=Execution)
    conditions: Conditions = field(default_factory=Conditions)
    cores_of_call: int | None = None
