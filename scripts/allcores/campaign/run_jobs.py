"""What the rules of train.smk call: what each run is made from, and the resources it takes."""

import os
import shutil
import sys
from pathlib import Path

from allcores.campaign import commands, state
from allcores.campaign import snakemake_internals as internals
from allcores.machine import warm_start
from allcores.machine.warm_start import TORCH
from allcores.study import registry, sweeps
from allcores.study.run import AUTO, PATH
from allcores.training import recipes

PROGRAM = registry.LIBRARY.parent / "train.py"
# Set by profiles/allocation.sh: the memory of the largest of its nodes.
NODE_MB = "ALLCORES_NODE_MB"


class RunJobs:
    """The runs of a config as jobs, looked up by the wildcards of their paths.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.table, self.folder = call, call.config, call.table, call.folder
        self.estimates, self.cores = call.estimates, call.cores_of_a_run
        self.turns = call.table.turns()
        self.current = state.Current(call.folder, call.table)
        self.run_of_recipe, self.first_of_family = {}, {}
        for run in call.table.runs.values():
            if run.has_auto:
                self.run_of_recipe.setdefault(_recipe_of(run.wildcards, run.measured), run)
            family = sweeps.family_of(call.config, run.model.label), run.dataset.label
            self.first_of_family.setdefault(family, run.model.label)

    def run(self, wildcards):
        return self.table.runs[PATH.format(**wildcards)]

    def with_recipe(self, wildcards):
        """A run that is trained with the recipe of these wildcards."""
        return self.run_of_recipe[_recipe_of(wildcards, wildcards.measured)]

    def recipe_to_share(self, wildcards):
        """The recipe of the first candidate of a model's sweep, so that all candidates compute in
        the same way and differ only in what varies; []: there is no sweep, or it is the first."""
        family = sweeps.family_of(self.config, wildcards.model)
        first = self.first_of_family[family, wildcards.dataset]
        if first == wildcards.model:
            return []
        return self.folder.recipe.format(**dict(wildcards.items()) | {"model": first})

    def cores_of_recipe(self, wildcards):
        """As many as were measured before, if that is enough, so that nothing is measured again."""
        if self.with_recipe(wildcards).threads_per_worker != AUTO:
            return 1
        file = self.folder.recipe.format(**wildcards)
        return max(self.call.most_cores, recipes.cores_measured(file))

    def memory_of_recipe(self, wildcards, attempt):
        needed = self._memory_mb(self.with_recipe(wildcards), attempt)
        return max(needed, min(2 * needed, int(os.environ.get(NODE_MB, 10**9))))

    def minutes_of_recipe(self, wildcards, attempt):
        return attempt * self.estimates.minutes(self.with_recipe(wildcards))

    def recipe_key(self, wildcards):
        """What a recipe depends on; on a cluster any node may measure it."""
        processor = "of a node" if self.call.is_on_cluster else None
        return recipes.cache_key(self.with_recipe(wildcards), processor)

    def calibrate_command(self, wildcards, input, output):
        """The call of scripts/calibrate.py, for the shell."""
        run = self.with_recipe(wildcards)
        return commands.quoted(
            *self._call(PROGRAM.with_name("calibrate.py")),
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *["--known", self._recipe_files(run)[1]],
            *(["--share", input.share] if input.share else []),
            *["--output", output[0]],
        )

    def _submits(self, run):
        """Whether a run is a SLURM job on several nodes."""
        return run.nodes > 1 and self.call.is_on_cluster and not self.call.launcher

    def _call(self, program):
        if self.call.launcher:
            return warm_start.command_on_a_node(program)
        return warm_start.command(program, self.call.warm(TORCH))

    @property
    def cluster_resources(self):
        """The resources, beside cores, by which runs are packed or that a cluster is asked for; an
        exclusive run gets a node to itself. Only those that are needed: each function that
        Snakemake calls slows down every dry run."""
        needs = {"mem_mb": self.memory_mb}
        if self.call.launcher or not self.cores:
            needs |= {"runtime": self.minutes}
        if self.call.launcher:
            needs |= {"nodes": self.nodes}
        elif any(run.nodes > 1 for run in self.table.runs.values()):
            needs |= {"nodes": self.nodes, "mpi": self.launcher, "tasks": self.nodes}
        return needs | ({"slurm_extra": self.slurm_extra} if self.table.exclusive else {})

    def slurm_extra(self, wildcards):
        return "--exclusive" if self.is_exclusive(wildcards) else ""

    def nodes(self, wildcards):
        return self.run(wildcards).nodes

    def launcher(self, wildcards):
        """What starts a program on all nodes of a cluster's job; "": there is only one node."""
        return "srun" if self.nodes(wildcards) > 1 else ""

    def is_exclusive(self, wildcards):
        return self.table.conditions[self.run(wildcards).path].exclusive

    def inputs(self, wildcards):
        """Name -> file of what has to be there before a run begins.

        Also ensures that the run is trained again if it was made of something else, of which
        there is no record once .snakemake is gone, and that it is not trained again if Snakemake
        was interrupted just after its end.
        """
        run = self.run(wildcards)
        metrics = self.folder.metrics(run.path)
        if self.call.is_main and Path(metrics).exists():
            damaged = self.folder.damaged_file(run.path)
            if damaged:
                print(f"{damaged} is not what the run wrote: it is trained again", file=sys.stderr)
            if not self.current(run.path):
                internals.force(self.call.workflow, [metrics])
            elif internals.is_interrupted(self.call.workflow, metrics):
                internals.forget_interruption(self.call.workflow, [metrics])
        return self.folder.inputs_of(run)

    def check_recipe(self, wildcards):
        """No input; ensures that a recipe that runs were trained with is what was measured.

        If it were measured again it might be another one, and all of them would be trained again.
        """
        run = self.with_recipe(wildcards)
        file, copy = (Path(path) for path in self._recipe_files(run))
        if not self.call.is_main or recipes.is_sound(file):
            return []
        info = Path(self.folder.data(run), "dataset.json")
        if not recipes.is_sound(copy) or not info.exists():
            if file.exists():
                internals.force(self.call.workflow, [str(file)])
        elif not internals.is_dry_run(self.call.workflow):
            print(f"{file} is damaged or gone; it is written again from {copy}", file=sys.stderr)
            shutil.copyfile(copy, file)
            os.utime(file, (info.stat().st_mtime, info.stat().st_mtime))
        return []

    def _recipe_files(self, run):
        """The file of a Run's recipe, and its copy, whose name has a digest of its cache key."""
        measured = self.folder.recipe.format(**run.wildcards, measured=run.measured)
        return measured, f"{self.folder.plan_file('recipes')}/{recipes.file_name(run)}"

    def threads(self, wildcards, input):
        """The cores of a run: on all nodes if Snakemake packs them, else on one. An exclusive run
        claims every core, even if it uses fewer."""
        run = self.run(wildcards)
        if run.threads_per_worker == AUTO and Path(input.recipe).exists():
            run = recipes.fill_in(run, input.recipe, self.call.most_cores)
        cores = run.cores_on_node
        on_node = self.cores or cores if self.is_exclusive(wildcards) else cores
        return on_node * (run.nodes if self.call.launcher else 1)

    def priority(self, wildcards):
        """Exclusive runs come first, in turns, so that the others can then keep all cores busy; of
        the others the longest come first."""
        run = self.run(wildcards)
        return 1e8 - self.turns[run.path] if run.path in self.turns else self.estimates.seconds(run)

    def memory_mb(self, wildcards, attempt):
        return self._memory_mb(self.run(wildcards), attempt)

    def _memory_mb(self, run, attempt):
        needed = self.estimates.memory_mb(run)
        # More after a failure, but not more than a node of the allocation has.
        return max(needed, min(attempt * needed, int(os.environ.get(NODE_MB, 10**9))))

    def too_large(self):
        """Yield a line if a run needs more memory than a node of the allocation has.

        As a step it would wait for ever for room, or be ended as soon as it begins.
        """
        room = int(os.environ.get(NODE_MB, 10**9))
        needed = {path: self._memory_mb(run, 1) for path, run in self.table.runs.items()}
        largest = max(needed, key=needed.get)
        if needed[largest] > room:
            yield (
                f"{largest} needs {needed[largest]} MB; SLURM gives this job {room} MB on a node: "
                f"submit it with --mem=0 (all of a node's) or --mem={needed[largest]}"
            )

    def minutes(self, wildcards, attempt):
        return attempt * self.estimates.minutes(self.run(wildcards))

    def decisive(self, wildcards):
        """Everything but its input files that retrains a run when it changes, as one line."""
        run = self.run(wildcards)
        return f"{self.current.made_of(run)} {self._generation(run)}"

    def _generation(self, run):
        return self.folder.conditions_of(run, self.table).generation

    def command(self, wildcards, input, resources):
        """The call of scripts/train.py, for the shell."""
        run = self.run(wildcards)
        asked = self.folder.conditions_of(run, self.table)
        return commands.quoted(
            *(_srun(run, resources) if self._submits(run) else self._call(PROGRAM)),
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *(["--fold-of", input.folds] if run.folds_file else []),
            *(["--recipe", input.recipe] if run.has_auto else []),
            *(["--curves"] if asked.curves else []),
            *(["--exclusive"] if asked.exclusive else []),
            *["--generation", asked.generation],
            *([] if self.config["pinning"] else ["--no-pinning"]),
            *(["--oversubscribe"] if run.path in self.table.oversubscribe else []),
            *(["--cores-of-call", self.cores] if self.cores else []),
            *(["--scratch", self.config["scratch"]] if "scratch" in self.config else []),
            *(["--interface", self.config["interface"]] if "interface" in self.config else []),
            *["--timeout", self.config["timeout"]],
            *["--checkpoint-minutes", self.config["checkpoint_minutes"]],
            *(["--tensorboard"] if "tensorboard" in self.config["logs"] else []),
            *["--output", self.folder.run(run.path)],
            # Not an output: a failed job's outputs are deleted, and it resumes from this.
            *["--checkpoints", self.folder.checkpoints(run)],
        )


def _recipe_of(wildcards, measured):
    """The key of the recipe that a run with these wildcards is trained with."""
    return wildcards["dataset"], wildcards["model"], measured


def _srun(run, resources):
    """The command that calls the program once on each node of a SLURM job."""
    limits = [f"--cpus-per-task={run.cores_on_node}", f"--mem={resources.mem_mb}"]
    ends = ["--kill-on-bad-exit=1", "--wait=0", "--input=none", "--quiet"]
    nodes = [f"--nodes={run.nodes}", f"--ntasks={run.nodes}", "--ntasks-per-node=1"]
    return ["srun", *nodes, *limits, *ends, sys.executable, PROGRAM]
