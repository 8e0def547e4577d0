"""What the rules of train.smk call: the inputs of each run, and the resources it takes."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.io import ancient

from allcores.files import read_json, write_json
from allcores_study import programs
from allcores_study.campaign import commands, warm_start
from allcores_study.campaign import snakemake_internals as internals
from allcores_study.campaign.warm_start import TORCH
from allcores_study.config import candidates
from allcores_study.config.candidates import Slot
from allcores_study.config.run import AUTO, PATH
from allcores_study.planning import dealing
from allcores_study.training import recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from snakemake.iocontainers import InputFiles, OutputFiles, ResourceList, Wildcards

    from allcores_study.campaign.call import Call
    from allcores_study.config.run import Run

PROGRAM = programs.PROGRAMS / "train.py"
# Set by profiles/allocation.sh: the memory of the largest of its nodes.
NODE_MB = "ALLCORES_NODE_MB"
# For the two processes of Snakemake in a submitted job.
SNAKEMAKE_MB = 300


class RunJobs:
    """The runs of a config as jobs, looked up by the wildcards of their paths.

    Args:
        call: the invocation.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.config, self.table, self.folder = call, call.config, call.table, call.folder
        self.estimates, self.cores = call.estimates, call.cores_of_a_run
        self.turns = call.table.turns()
        # Number of a shared job -> paths of its runs, or Slots.
        self.members: dict[str, Sequence[str | Slot]] = {}
        # Path of a run that this invocation trains, or a Slot -> its mark, see request().
        self.mark_of: dict[str | Slot, str] = {}

    def with_recipe(self, wildcards: Wildcards) -> Run:
        """Return the run for which the recipe of these wildcards is measured."""
        return self.call.ledger.run_of_recipe[self.folder.recipe.format(**wildcards)]

    def cores_of_recipe(self, wildcards: Wildcards) -> int:
        return self.call.ledger.cores_of_recipe(self.with_recipe(wildcards))

    @property
    def node_mb(self) -> int:
        """The memory of a node of the allocation, in MB; unlimited without an allocation."""
        return int(os.environ.get(NODE_MB, 10**9))

    def memory_of_recipe(self, wildcards: Wildcards, attempt: int) -> int:
        needed = self._memory_mb(self.with_recipe(wildcards), attempt)
        return max(needed, min(2 * needed, self.node_mb))

    def minutes_of_recipe(self, wildcards: Wildcards, attempt: int) -> int:
        return attempt * self.estimates.minutes([self.with_recipe(wildcards)])

    def calibrate_command(self, wildcards: Wildcards, output: OutputFiles) -> str:
        """Return the command that runs scripts/calibrate.py, for the shell."""
        run = self.with_recipe(wildcards)
        return commands.quoted(
            *self._call(PROGRAM.with_name("calibrate.py")),
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *["--output", self.call.ledger.recipe_file(run)],
            *["--mark", output[0]],
        )

    def _call(self, program: Path) -> list[Any]:
        if self.call.launcher:
            return warm_start.command_on_a_node(program)
        return warm_start.command(program, self.call.warm(TORCH))

    @property
    def cluster_resources(self) -> dict[str, Callable[..., int | str]]:
        """The resources besides cores: runs are packed by them, and a cluster is asked for them.

        An exclusive run gets a node to itself. Only what is needed is included, because each
        function that Snakemake calls slows down every dry run.
        """
        needs: dict[str, Callable[..., int | str]] = {"mem_mb": self.memory_mb}
        if self.call.launcher or not self.cores:
            needs |= {"runtime": self.minutes}
        if self.call.launcher:
            needs |= {"nodes": self.nodes}
        elif any(run.nodes > 1 for run in self.table.runs.values()):
            needs |= {"nodes": self.nodes, "mpi": self.launcher, "tasks": self.nodes}
        return needs | ({"slurm_extra": self.slurm_extra} if self.table.exclusive else {})

    def slurm_extra(self, wildcards: Wildcards) -> str:
        return self.options_of_sbatch if self.is_exclusive(wildcards) else self.of_profile

    @functools.cached_property
    def of_profile(self) -> str:
        """The sbatch options that a profile gives all jobs."""
        return internals.default_text(self.call.workflow, "slurm_extra")

    @property
    def options_of_sbatch(self) -> str:
        """The sbatch options of a job that needs a node to itself."""
        return f"--exclusive {self.of_profile}".strip()

    def nodes(self, wildcards: Wildcards) -> int:
        return self._runs(wildcards)[0].nodes

    def launcher(self, wildcards: Wildcards) -> str:
        """Return what starts a program on all nodes of a cluster's job; "" if there is one node."""
        return "srun" if self.nodes(wildcards) > 1 else ""

    def is_exclusive(self, wildcards: Wildcards) -> bool:
        return self.table.conditions[self._runs(wildcards)[0].path].exclusive

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """Return the marks of what is made before the runs of a job begin.

        These are their data, what `auto` stands for, and the choices whose slots they are in. A
        valid run does not wait for what is missing: if its data were rebuilt, Snakemake would
        retrain it.
        """
        if not self.call.is_main:  # a submitted job, for which everything has been made
            return []
        marks: dict[str, None] = {}
        ledger = self.call.ledger
        for member in self._members(wildcards):
            run = self._run_of(member)
            needed = [*ledger.data(run), ledger.recipe(run)]
            if isinstance(member, Slot):
                choice = self.table.choices[member.choice]
                paths = choice.paths_possible(member).values()
                # What another job trains anyway is not trained twice.
                needed += [ledger.choice(choice), *map(self.mark_of.get, paths)]
            elif ledger.are_valid([member]):
                needed = [mark for mark in needed if mark and Path(mark).exists()]
            marks |= dict.fromkeys(filter(None, needed))
        return list(map(ancient, marks))

    def as_inputs(self, marks: Iterable[str | None]) -> list[str]:
        """Return the inputs of what is made of runs.

        A mark that exists does not cause a rebuild, unless runs are forced.
        """
        found = filter(None, marks)
        return list(found if self.is_forced else map(ancient, found))

    @functools.cached_property
    def is_forced(self) -> bool:
        """Whether all runs are to be retrained.

        Snakemake forces jobs that it knows, and valid stored runs have none. A job of a cluster
        reads this from a file, see _members().
        """
        forced = internals.forced_rules(self.call.workflow)
        return forced is None or not forced.isdisjoint(("train", "train_several"))

    def request(self, members: Iterable[str | Slot]) -> list[str]:
        """Return the marks of runs.

        Runs that are not valid are trained, in jobs of their own or in shared jobs, which have a
        mark each. Valid stored runs have none.

        Args:
            members: paths of the runs, and Slots.
        """
        self.call.choose()
        members = list(dict.fromkeys(members))
        new = [m for m in members if m not in self.mark_of and self._is_to_train(m)]
        if new:
            self._deal(new)
        marks = [self.mark_of.get(member) or self.call.ledger.run(member) for member in members]
        return list(dict.fromkeys(filter(None, marks)))

    def _is_to_train(self, member: str | Slot) -> bool:
        is_open = self.is_forced or isinstance(member, Slot)
        return is_open or not self.call.ledger.are_valid([member])  # type: ignore[list-item]

    def _deal(self, members: list[str | Slot]) -> None:
        """Decide which of these share jobs.

        If the slots of several choices may hold the same run, they share a job, which trains it
        once.
        """
        self.call.try_out_models()
        self._deal_out([member for member in members if not isinstance(member, Slot)])
        all_slots = [member for member in members if isinstance(member, Slot)]
        for slots in candidates.by_rung(all_slots, self.table.selections, self.table.runs):
            alone = []
            for group in candidates.overlapping(slots, self.table.choices):
                if len({slot.choice for slot in group}) > 1:
                    self._share(group)
                else:
                    alone += group
            self._deal_out(alone)

    def _deal_out(self, members: Sequence[str | Slot]) -> None:
        """Deal out members, no two of which may be the same run."""
        member_of = {self._named(member): member for member in members}
        for group in self._groups(member_of):
            self._share([member_of.pop(run.path) for run in group])
        for path, member in member_of.items():
            if isinstance(member, Slot):
                self._share([member])
            else:
                self.mark_of[path] = self.call.ledger.run_to_train(path)

    def _named(self, member: str | Slot) -> str:
        """Return the path of a member; for a Slot, that of a candidate, distinct for each place."""
        if isinstance(member, Slot):
            path = self.table.choices[member.choice].path_in(member)
            assert path is not None, "a slot has a candidate"
            return path
        return member

    def _groups(self, member_of: dict[str, str | Slot]) -> list[list[Run]]:
        """Return the groups of runs that share a job.

        Args:
            member_of: path -> that path, or the Slot for which the path stands. _run_of() gives the
                run with the most work that may be in a Slot.
        """
        conditions, work = self.table.conditions, self.estimates.work
        short = [
            self.table.runs[path]
            for path, member in member_of.items()
            if dealing.is_short(self._run_of(member), work(self._run_of(member)), conditions[path])
        ]
        cores = self.call.local_cores
        wanted = dealing.LOCAL if cores else dealing.SUBMITTED
        wanted = dealing.STEP if self.call.launcher else wanted
        jobs, per_job = internals.jobs_at_once(self.call.workflow), self.config.get("runs_per_job")
        groups = dealing.deal(short, work, cores, wanted, jobs or 1, per_job)
        return [group for group in groups if len(group) > 1]

    def _share(self, members: Sequence[str | Slot]) -> None:
        """Put members into a shared job, and record them for the process that trains them."""
        number = str(len(self.members))
        self.members[number] = members
        mark = self.folder.shared_job(self.call.name, number, "done")
        self.mark_of |= dict.fromkeys(members, mark)
        if self.call.executes:
            file = Path(self.folder.shared_job(self.call.name, number, "json"))
            file.parent.mkdir(parents=True, exist_ok=True)
            named = [dataclasses.astuple(m) if isinstance(m, Slot) else m for m in members]
            content = {"results": self.folder.path, "members": named, "is_forced": self.is_forced}
            write_json(file, content | {"runs": {}})

    def _members(self, wildcards: Wildcards) -> Sequence[str | Slot]:
        """Return the paths or Slots of the runs of a job."""
        if not hasattr(wildcards, "number"):
            return [PATH.format(**wildcards)]
        if self.call.is_main:
            return self.members[wildcards.number]
        file = self.folder.shared_job(wildcards.call, wildcards.number, "json")
        job = read_json(file)
        self.is_forced = job["is_forced"]
        return [Slot(*one) if isinstance(one, list) else one for one in job["members"]]

    def _run_of(self, member: str | Slot) -> Run:
        """Return the run at a path or in a Slot.

        While it is not known, this is the run with the most work that may be in the Slot.
        """
        if self._is_known(member):
            return self.table.runs[self._path_of(member) or self._named(member)]
        return self.table.runs[self._largest(member.choice, member.fold)]  # type: ignore[union-attr]

    def _is_known(self, member: str | Slot) -> bool:
        """Return whether it is known which run is at a path or in a Slot."""
        if not isinstance(member, Slot) or not self.call.is_main:
            return True
        return self.call.ledger.is_made(self.table.choices[member.choice])

    @functools.cache  # noqa: B019
    def _largest(self, choice: str, fold: int | None) -> str:
        paths = self.table.choices[choice].paths_possible(Slot(choice, 0, fold)).values()
        return max(paths, key=lambda path: self.estimates.work(self.table.runs[path]))

    def _runs(self, wildcards: Wildcards) -> list[Run]:
        """Return the runs of a job."""
        return list(map(self._run_of, self._members(wildcards)))

    def paths_of_job(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the runs of a job that are known."""
        known = filter(self._is_known, self._members(wildcards))
        return list(filter(None, map(self._path_of, known)))

    def _path_of(self, member: str | Slot) -> str | None:
        is_slot = isinstance(member, Slot)
        return self.call.selections.path_in(member) if is_slot else member  # type: ignore[arg-type, return-value]

    def paths_to_train(self, wildcards: Wildcards) -> list[str]:
        """Return the paths of the runs that a job trains.

        What a choice keeps may be valid already, or be trained by another job of this invocation.
        """
        paths: dict[Any, None] = {}
        for member in filter(self._is_known, self._members(wildcards)):
            path = self._path_of(member)
            is_member = not isinstance(member, Slot)
            if is_member or (path and path not in self.mark_of and self._is_to_train(path)):
                paths[path] = None
        return list(paths)

    def paths_possible(self, wildcards: Wildcards) -> Iterator[str]:
        """Yield the paths of all runs that a job may train, before it is known which it trains."""
        for member in self._members(wildcards):
            if isinstance(member, Slot):
                choice = self.table.choices[member.choice]
                paths = choice.paths_possible(member).values()
                # Whether suggested candidates are valid is not known yet.
                yield from (path for path in paths if choice.search or self._is_to_train(path))
            else:
                yield member

    def recipe_inputs(self, wildcards: Wildcards) -> list[str]:
        """Return the mark of the dataset; [] in a job of a cluster, where the dataset exists."""
        mark = self.call.ledger.dataset(wildcards.dataset) if self.call.is_main else None
        return [ancient(mark)] if mark else []

    def threads(self, wildcards: Wildcards, input: InputFiles) -> int:
        """Return the cores of a run: on all nodes if Snakemake packs them, else on one.

        An exclusive run claims every core, even if it uses fewer.
        """
        run = self._runs(wildcards)[0]  # all runs of a job occupy as many
        recipe = self.call.ledger.recipe_file(run)
        if run.threads_per_worker == AUTO and recipes.is_sound(recipe):
            run = recipes.fill_in(run, recipe, self.call.most_cores)
        cores = run.cores_on_node
        on_node = cores
        if self.is_exclusive(wildcards) and self.cores is not None:
            on_node = self.cores
        return on_node * (run.nodes if self.call.launcher else 1)

    def priority(self, wildcards: Wildcards) -> float:
        """Return the priority of a job: exclusive runs come first, in turns, then the longest.

        The other runs can then keep all cores busy.
        """
        runs = self._runs(wildcards)
        if runs[0].path in self.turns:
            return 1e8 - self.turns[runs[0].path]
        return math.fsum(map(self.estimates.seconds, runs))

    def memory_mb(self, wildcards: Wildcards, attempt: int) -> int:
        return max(self._memory_mb(run, attempt) for run in self._runs(wildcards))

    def _memory_mb(self, run: Run, attempt: int) -> int:
        needed = self.estimates.memory_mb(run) + SNAKEMAKE_MB * (self.cores is None)
        # More after a failure, but not more than a node of the allocation has.
        return max(needed, min(attempt * needed, self.node_mb))

    def too_large(self) -> Iterator[str]:
        """Yield a line if a run needs more memory than a node of the allocation has.

        As a step it would wait forever for room, or be ended as soon as it begins.
        """
        needed = {path: self._memory_mb(run, 1) for path, run in self.table.runs.items()}
        largest = max(needed, key=needed.get)  # type: ignore[arg-type]
        if needed[largest] > self.node_mb:
            yield (
                f"{largest}: needs {needed[largest]} MB; SLURM gives this job {self.node_mb} MB on "
                f"a node; submit it with --mem=0 (all of a node) or --mem={needed[largest]}"
            )

    def minutes(self, wildcards: Wildcards, attempt: int) -> int:
        return attempt * self.estimates.minutes(self._runs(wildcards))

    def command(self, wildcards: Wildcards, output: OutputFiles, resources: ResourceList) -> str:
        """Return the command that runs scripts/train.py for a run, for the shell."""
        (run,) = self._runs(wildcards)
        return self._command_of(run, output, resources)

    def _command_of(self, run: Run, marks: Iterable[str], resources: ResourceList) -> str:
        call = self._call(PROGRAM)
        if run.nodes > 1 and self.call.is_on_cluster and not self.call.launcher:
            call = [*commands.srun(run, resources.mem_mb), sys.executable, PROGRAM]
        arguments = self._arguments(run, self.folder.run(run.path))
        arguments += [word for mark in marks for word in ("--mark", mark)]
        return commands.quoted(*call, *arguments)

    def command_of_shared(
        self, wildcards: Wildcards, output: OutputFiles, resources: ResourceList
    ) -> str:
        """Return the command that runs scripts/train.py for a shared job, for the shell.

        Snakemake calls this when the job begins: by then it is known which runs are in its slots.
        """
        file = Path(self.folder.shared_job(wildcards.call, wildcards.number, "json"))
        runs = [self.table.runs[path] for path in self.paths_to_train(wildcards)]
        if self.call.executes or not self.call.is_main:
            arguments = {
                run.path: list(map(str, self._arguments(run, file.with_suffix("") / str(place))))
                for place, run in enumerate(runs)
            }
            write_json(file, read_json(file) | {"runs": arguments})
        if len(runs) == 1:
            marks = [output[0], self.call.ledger.run_to_train(runs[0].path)]
            return self._command_of(runs[0], marks, resources)
        return commands.quoted(*self._call(PROGRAM), "--job", file, "--mark", output[0])

    def _arguments(self, run: Run, output: str | Path) -> list[Any]:
        """Return the flags with which scripts/train.py trains a run into a folder."""
        asked = self.table.conditions[run.path]
        return [
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *(["--fold-of", f"{self.folder.data(run)}/{run.folds_file}"] if run.folds_file else []),
            *(["--recipe", self.call.ledger.recipe_file(run)] if run.has_auto else []),
            *(["--curves"] if asked.curves else []),
            *(["--exclusive"] if asked.exclusive else []),
            *([] if self.config["pinning"] else ["--no-pinning"]),
            *(["--oversubscribe"] if run.path in self.table.oversubscribe else []),
            *(["--cores-of-call", self.cores] if self.cores else []),
            *["--timeout", self.config["timeout"]],
            *["--checkpoint-minutes", self.config["checkpoint_minutes"]],
            *["--output", output],
            # Not an output: Snakemake deletes those of a failed job, and the run resumes from this.
            *["--checkpoints", self.folder.checkpoints(run)],
        ]
