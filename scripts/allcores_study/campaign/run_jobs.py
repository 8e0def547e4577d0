"""What the rules of train.smk call: the runs of each job, its inputs, and its resources."""

from __future__ import annotations

import functools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.io import ancient

from allcores_study import programs
from allcores_study.campaign import commands, warm_start
from allcores_study.campaign import snakemake_internals as internals
from allcores_study.config.run import PATH
from allcores_study.planning import dealing
from allcores_study.training import run_request
from allcores_study.training.run_request import RunRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from snakemake.iocontainers import InputFiles, OutputFiles, ResourceList, Wildcards

    from allcores_study.campaign.call import Call
    from allcores_study.config.run import Run

PROGRAM = programs.PROGRAMS / "train.py"
# For the two processes of Snakemake in a submitted job.
SNAKEMAKE_MB = 300


class RunJobs:
    """The runs of a config as jobs, looked up by the wildcards of their marks.

    Args:
        call: the invocation.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.table, self.folder = call, call.table, call.folder
        self.cores = call.local_cores
        self.turns = call.table.turns()
        self.members: dict[str, list[str]] = {}  # number of a shared job -> paths of its runs
        self.mark_of: dict[str, str] = {}  # path of a run that this invocation trains -> its mark

    # Which runs a job trains.

    def request(self, paths: Iterable[str]) -> list[str]:
        """Return the marks of runs.

        Runs that are not valid are trained, in jobs of their own or in shared jobs, which have a
        mark each. Valid runs that shared a job have none.
        """
        paths = list(dict.fromkeys(paths))
        new = [path for path in paths if path not in self.mark_of and self._is_to_train(path)]
        if new:
            self.call.try_out_models()
        # What waits for a choice is never in a job with what that choice waits for.
        for is_chosen in (False, True):
            self._deal([path for path in new if (path in self.table.selections) == is_chosen])
        marks = [self.mark_of.get(path) or self.call.ledger.run(path) for path in paths]
        return list(dict.fromkeys(filter(None, marks)))

    def _is_to_train(self, path: str) -> bool:
        return self.is_forced or not self.call.ledger.is_valid(path)

    @functools.cached_property
    def is_forced(self) -> bool:
        """Whether all runs are to be retrained, also those that Snakemake does not know."""
        forced = internals.forced_rules(self.call.workflow)
        return forced is None or not forced.isdisjoint(("train", "train_several"))

    def _deal(self, paths: list[str]) -> None:
        """Decide which runs share jobs, and write the files of these."""
        runs = list(map(self.call.estimates.run_at, paths))
        given = self.call.config, self.cores, internals.jobs_at_once(self.call.workflow) or 1
        for job in dealing.jobs_of(runs, self.call.estimates, *given) if runs else ():
            members = [run.path for run in job]
            if len(members) == 1:
                self.mark_of[members[0]] = self.call.ledger.run_to_train(members[0])
                continue
            number = str(len(self.members))
            self.members[number] = members
            mark = self.folder.shared_job(self.call.name, number, "done")
            self.mark_of |= dict.fromkeys(members, mark)
            if self.call.executes:
                file = self.folder.shared_job(self.call.name, number, "json")
                run_request.write(file, self.folder.path, list(map(self.request_of, members)))

    def paths(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the runs of a job."""
        if not hasattr(wildcards, "number"):
            return [PATH.format(**wildcards)]
        if self.call.is_main:
            return self.members[wildcards.number]
        return [request.run.path for request in run_request.read(self._job_file(wildcards))[1]]

    def _runs(self, wildcards: Wildcards) -> list[Run]:
        """Return the runs of a job; for a chosen one, the candidate with the most work."""
        return list(map(self.call.estimates.run_at, self.paths(wildcards)))

    def _job_file(self, wildcards: Wildcards) -> str:
        if hasattr(wildcards, "number"):
            return self.folder.shared_job(wildcards.call, wildcards.number, "json")
        return self.folder.job(PATH.format(**wildcards), "json")

    def request_of(self, path: str) -> RunRequest:
        """Return the request to train the run at a path."""
        run, config = self.table.runs[path], self.call.config
        data = Path(self.folder.data(run))
        selections = self.table.selections_of_inner.get(path, ())
        return RunRequest(
            run=run,
            data_folder=data,
            # Not an output: Snakemake deletes those of a failed job, and the run resumes from this.
            checkpoint_folder=Path(self.folder.checkpoints(run)),
            output=Path(self.folder.run(path)),
            fold_file=data / run.folds_file if run.folds_file else None,
            selection=self.table.selections.get(path),
            metrics=tuple(dict.fromkeys(name for one in selections for name in one.metrics)),
            again=self.is_forced,
            conditions=self.table.conditions[path],
            cores_of_call=self.cores,
            oversubscribe=path in self.table.oversubscribe,
            pinning=config["pinning"],
            timeout=config["timeout"],
            save_every=60 * config["checkpoint_minutes"],
        )

    # What Snakemake asks of a job.

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """Return the marks of what is made before a job begins: data, and inner runs to compare.

        A valid run does not wait for what is missing: if its data were rebuilt, Snakemake would
        retrain it.
        """
        if not self.call.is_main:  # a submitted job, for which everything has been made
            return []
        marks: dict[str, None] = {}
        for path in self.paths(wildcards):
            needed = self.call.ledger.data(self.table.runs[path])
            if selection := self.table.selections.get(path):
                needed += self.request(selection.compared)
            if self.call.ledger.is_valid(path):
                needed = [mark for mark in needed if Path(mark).exists()]
            marks |= dict.fromkeys(needed)
        return self.as_inputs(marks)

    def as_inputs(self, marks: Iterable[str | None]) -> list[str]:
        """Return the inputs of what is made of runs.

        A mark that exists does not cause a rebuild, unless runs are forced.
        """
        found = filter(None, marks)
        return list(found if self.is_forced else map(ancient, found))

    def command(self, wildcards: Wildcards, output: OutputFiles, resources: ResourceList) -> str:
        """Return the command that runs scripts/train.py for a job, for the shell."""
        file, run = self._job_file(wildcards), self._runs(wildcards)[0]
        is_alone = not hasattr(wildcards, "number")
        if is_alone and (self.call.executes or not self.call.is_main):
            run_request.write(file, self.folder.path, [self.request_of(run.path)])
        call: list[Any] = warm_start.command(PROGRAM, self.call.is_warm)
        if run.nodes > 1 and self.call.is_on_cluster:
            call = [*commands.srun(run, resources.mem_mb), sys.executable, PROGRAM]
        return commands.quoted(*call, "--job", file, "--mark", output[0])

    @property
    def cluster_resources(self) -> dict[str, Callable[..., int | str]]:
        """The resources besides cores: runs are packed by them, and a cluster is asked for them.

        An exclusive run gets a node to itself. Only what is needed is included, because each
        function that Snakemake calls slows down every dry run.
        """
        needs: dict[str, Callable[..., int | str]] = {"mem_mb": self.memory_mb}
        if not self.cores:
            needs |= {"runtime": self.minutes}
        if any(run.nodes > 1 for run in self.table.runs.values()):
            needs |= {"nodes": self.nodes, "mpi": self.launcher, "tasks": self.nodes}
        return needs | ({"slurm_extra": self.slurm_extra} if self.table.exclusive else {})

    def slurm_extra(self, wildcards: Wildcards) -> str:
        """Return the sbatch options of a job: a profile's, and a node to itself if exclusive."""
        of_profile = internals.default_text(self.call.workflow, "slurm_extra")
        return f"--exclusive {of_profile}".strip() if self.is_exclusive(wildcards) else of_profile

    def nodes(self, wildcards: Wildcards) -> int:
        return self._runs(wildcards)[0].nodes

    def launcher(self, wildcards: Wildcards) -> str:
        """Return what starts a program on all nodes of a cluster's job; "" if there is one node."""
        return "srun" if self.nodes(wildcards) > 1 else ""

    def is_exclusive(self, wildcards: Wildcards) -> bool:
        return self.table.conditions[self.paths(wildcards)[0]].exclusive

    def threads(self, wildcards: Wildcards, input: InputFiles) -> int:
        """Return the cores of a run on a node; an exclusive one claims all of them."""
        if self.cores and self.is_exclusive(wildcards):
            return self.cores
        return self._runs(wildcards)[0].cores_on_node  # all runs of a job occupy as many

    def priority(self, wildcards: Wildcards) -> float:
        """Return the priority of a job: exclusive runs come first, in turns, then the longest.

        The other runs can then keep all cores busy.
        """
        runs = self._runs(wildcards)
        if runs[0].path in self.turns:
            return 1e8 - self.turns[runs[0].path]
        return math.fsum(map(self.call.estimates.seconds, runs))

    def memory_mb(self, wildcards: Wildcards, attempt: int) -> int:
        needed = max(map(self.call.estimates.memory_mb, self._runs(wildcards)))
        return attempt * (needed + SNAKEMAKE_MB * (self.cores is None))

    def minutes(self, wildcards: Wildcards) -> int:
        """Return the time limit, also of a repeated job: it resumes, and limits are generous."""
        return self.call.estimates.minutes(self._runs(wildcards))
