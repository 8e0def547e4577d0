"""What the rules of train.smk call: what each run is made from, and the resources it takes."""

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
# Of the two processes of Snakemake's in a job that is submitted.
SNAKEMAKE_MB = 300


class RunJobs:
    """The runs of a config as jobs, looked up by the wildcards of their paths.

    Args:
        call: call.Call.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.config, self.table, self.folder = call, call.config, call.table, call.folder
        self.estimates, self.cores = call.estimates, call.cores_of_a_run
        self.turns = call.table.turns()
        # Number of a job of several runs -> paths of these, or Slots.
        self.members: dict[str, Sequence[str | Slot]] = {}
        # Path of a run that this call trains, or a Slot -> see request().
        self.mark_of: dict[str | Slot, str] = {}

    def with_recipe(self, wildcards: Wildcards) -> Run:
        """The run for which the recipe of these wildcards is measured."""
        return self.call.ledger.run_of_recipe[self.folder.recipe.format(**wildcards)]

    def cores_of_recipe(self, wildcards: Wildcards) -> int:
        return self.call.ledger.cores_of_recipe(self.with_recipe(wildcards))

    @property
    def node_mb(self) -> int:
        """The memory of a node of the allocation, in MB; without one there is no limit."""
        return int(os.environ.get(NODE_MB, 10**9))

    def memory_of_recipe(self, wildcards: Wildcards, attempt: int) -> int:
        needed = self._memory_mb(self.with_recipe(wildcards), attempt)
        return max(needed, min(2 * needed, self.node_mb))

    def minutes_of_recipe(self, wildcards: Wildcards, attempt: int) -> int:
        return attempt * self.estimates.minutes([self.with_recipe(wildcards)])

    def calibrate_command(self, wildcards: Wildcards, output: OutputFiles) -> str:
        """The call of scripts/calibrate.py, for the shell."""
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
        """The resources, beside cores, by which runs are packed or that a cluster is asked for; an
        exclusive run gets a node to itself. Only those that are needed: each function that
        Snakemake calls slows down every dry run."""
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
        """The options of sbatch that a profile gives all jobs."""
        return internals.default_text(self.call.workflow, "slurm_extra")

    @property
    def options_of_sbatch(self) -> str:
        """Those of a job that needs a node to itself."""
        return f"--exclusive {self.of_profile}".strip()

    def nodes(self, wildcards: Wildcards) -> int:
        return self._runs(wildcards)[0].nodes

    def launcher(self, wildcards: Wildcards) -> str:
        """What starts a program on all nodes of a cluster's job; "": there is only one node."""
        return "srun" if self.nodes(wildcards) > 1 else ""

    def is_exclusive(self, wildcards: Wildcards) -> bool:
        return self.table.conditions[self._runs(wildcards)[0].path].exclusive

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """What is made before the runs of a job begin: their data, what `auto` stands for, and the
        choices whose slots they are in. A run that is valid waits for nothing that is missing: were
        its data made again, Snakemake would train it again."""
        if not self.call.is_main:  # all of it is there
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
        """The inputs of what is made of runs. It is not made again for a mark that is there, unless
        runs are forced."""
        found = filter(None, marks)
        return list(found if self.is_forced else map(ancient, found))

    @functools.cached_property
    def is_forced(self) -> bool:
        """Whether all runs are to be trained again. Snakemake forces jobs that it knows; stored
        runs that are valid have none. A job of a cluster is told, see _members()."""
        forced = internals.forced_rules(self.call.workflow)
        return forced is None or not forced.isdisjoint(("train", "train_several"))

    def request(self, members: Iterable[str | Slot]) -> list[str]:
        """The marks of runs. Those that are not valid are trained, in jobs of their own or in
        shared jobs, which have a mark each; stored runs that are valid have none.

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
        """Decide which of these share jobs. If the slots of several choices may hold the same run,
        they share one, which trains it once."""
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
        """Deal out members of which no two may be the same run."""
        member_of = {self._named(member): member for member in members}
        for group in self._groups(member_of):
            self._share([member_of.pop(run.path) for run in group])
        for path, member in member_of.items():
            if isinstance(member, Slot):
                self._share([member])
            else:
                self.mark_of[path] = self.call.ledger.run_to_train(path)

    def _named(self, member: str | Slot) -> str:
        """The path of a member; of a Slot, that of a candidate, another one for each place."""
        if isinstance(member, Slot):
            path = self.table.choices[member.choice].path_in(member)
            assert path is not None, "a slot has a candidate"
            return path
        return member

    def _groups(self, member_of: dict[str, str | Slot]) -> list[list[Run]]:
        """The groups of Runs that share a job.

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
        """Have members share a job, and write them down for the process that trains them."""
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
        """Paths or Slots of the runs of a job."""
        if not hasattr(wildcards, "number"):
            return [PATH.format(**wildcards)]
        if self.call.is_main:
            return self.members[wildcards.number]
        file = self.folder.shared_job(wildcards.call, wildcards.number, "json")
        job = read_json(file)
        self.is_forced = job["is_forced"]
        return [Slot(*one) if isinstance(one, list) else one for one in job["members"]]

    def _run_of(self, member: str | Slot) -> Run:
        """The Run at a path or in a Slot; while that is not known, the one with the most work that
        may be in it."""
        if self._is_known(member):
            return self.table.runs[self._path_of(member) or self._named(member)]
        return self.table.runs[self._largest(member.choice, member.fold)]  # type: ignore[union-attr]

    def _is_known(self, member: str | Slot) -> bool:
        """Whether it is known which run is at a path or in a Slot."""
        if not isinstance(member, Slot) or not self.call.is_main:
            return True
        return self.call.ledger.is_made(self.table.choices[member.choice])

    @functools.cache  # noqa: B019
    def _largest(self, choice: str, fold: int | None) -> str:
        paths = self.table.choices[choice].paths_possible(Slot(choice, 0, fold)).values()
        return max(paths, key=lambda path: self.estimates.work(self.table.runs[path]))

    def _runs(self, wildcards: Wildcards) -> list[Run]:
        """The Runs of a job."""
        return list(map(self._run_of, self._members(wildcards)))

    def paths_of_job(self, wildcards: Wildcards) -> list[str]:
        """Paths of the runs of a job that are known."""
        known = filter(self._is_known, self._members(wildcards))
        return list(filter(None, map(self._path_of, known)))

    def _path_of(self, member: str | Slot) -> str | None:
        is_slot = isinstance(member, Slot)
        return self.call.selections.path_in(member) if is_slot else member  # type: ignore[arg-type, return-value]

    def paths_to_train(self, wildcards: Wildcards) -> list[str]:
        """Paths of those that are trained: what a choice keeps may be there and valid, or be
        trained by another job of this call."""
        paths: dict[Any, None] = {}
        for member in filter(self._is_known, self._members(wildcards)):
            path = self._path_of(member)
            is_member = not isinstance(member, Slot)
            if is_member or (path and path not in self.mark_of and self._is_to_train(path)):
                paths[path] = None
        return list(paths)

    def paths_possible(self, wildcards: Wildcards) -> Iterator[str]:
        """Paths of all runs that may be trained, before it is known which are."""
        for member in self._members(wildcards):
            if isinstance(member, Slot):
                choice = self.table.choices[member.choice]
                paths = choice.paths_possible(member).values()
                # Of those that are suggested it is not known yet whether they are valid.
                yield from (path for path in paths if choice.search or self._is_to_train(path))
            else:
                yield member

    def recipe_inputs(self, wildcards: Wildcards) -> list[str]:
        """The dataset; a job of a cluster finds it there."""
        mark = self.call.ledger.dataset(wildcards.dataset) if self.call.is_main else None
        return [ancient(mark)] if mark else []

    def threads(self, wildcards: Wildcards, input: InputFiles) -> int:
        """The cores of a run: on all nodes if Snakemake packs them, else on one. An exclusive run
        claims every core, even if it uses fewer."""
        run = self._runs(wildcards)[0]  # of several, all occupy as many
        recipe = self.call.ledger.recipe_file(run)
        if run.threads_per_worker == AUTO and recipes.is_sound(recipe):
            run = recipes.fill_in(run, recipe, self.call.most_cores)
        cores = run.cores_on_node
        on_node = cores
        if self.is_exclusive(wildcards) and self.cores is not None:
            on_node = self.cores
        return on_node * (run.nodes if self.call.launcher else 1)

    def priority(self, wildcards: Wildcards) -> float:
        """Exclusive runs come first, in turns, so that the others can then keep all cores busy; of
        the others the longest come first."""
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

        As a step it would wait for ever for room, or be ended as soon as it begins.
        """
        needed = {path: self._memory_mb(run, 1) for path, run in self.table.runs.items()}
        largest = max(needed, key=needed.get)  # type: ignore[arg-type]
        if needed[largest] > self.node_mb:
            yield (
                f"{largest} needs {needed[largest]} MB; SLURM gives this job {self.node_mb} MB on "
                f"a node: submit it with --mem=0 (all of a node's) or --mem={needed[largest]}"
            )

    def minutes(self, wildcards: Wildcards, attempt: int) -> int:
        return attempt * self.estimates.minutes(self._runs(wildcards))

    def command(self, wildcards: Wildcards, output: OutputFiles, resources: ResourceList) -> str:
        """The call of scripts/train.py for a run, for the shell."""
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
        """The call of scripts/train.py for the runs that share a job, for the shell. It is asked
        for when the job begins: now it is known which runs are in its slots."""
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
        """The flags by which scripts/train.py trains a Run, with the results in a folder."""
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
            # Not an output: a failed job's outputs are deleted, and it resumes from this.
            *["--checkpoints", self.folder.checkpoints(run)],
        ]
