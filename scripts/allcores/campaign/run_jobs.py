"""What the rules of train.smk call: what each run is made from, and the resources it takes."""

import os
import sys

from allcores.campaign import commands, state
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
        self.current, self.valid = state.Current(call.folder, call.table), {}
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

    def run_to_share(self, wildcards):
        """A run of the first candidate of a model's sweep, whose recipe all candidates share, so
        that they differ only in what varies; None: there is no sweep, or this is the first."""
        family = sweeps.family_of(self.config, wildcards.model)
        first = self.first_of_family[family, wildcards.dataset]
        if first == wildcards.model:
            return None
        return self.run_of_recipe[wildcards.dataset, first, wildcards.measured]

    def cores_of_recipe(self, wildcards):
        """As many as were measured before, if that is enough, so that nothing is measured again."""
        return self._cores_measured(self.with_recipe(wildcards))

    def _cores_measured(self, run):
        if run.threads_per_worker != AUTO:
            return 1
        return max(self.call.most_cores, recipes.cores_measured(self._recipe_file(run)))

    def memory_of_recipe(self, wildcards, attempt):
        needed = self._memory_mb(self.with_recipe(wildcards), attempt)
        return max(needed, min(2 * needed, int(os.environ.get(NODE_MB, 10**9))))

    def minutes_of_recipe(self, wildcards, attempt):
        return attempt * self.estimates.minutes(self.with_recipe(wildcards))

    def calibrate_command(self, wildcards, input, output):
        """The call of scripts/calibrate.py, for the shell."""
        run, share = self.with_recipe(wildcards), self.run_to_share(wildcards)
        return commands.quoted(
            *self._call(PROGRAM.with_name("calibrate.py")),
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *["--known", self._copy_of_recipe(run)],
            *(["--share", self._recipe_file(share)] if share else []),
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
        """Name -> file of what this call makes before a run begins.

        Results that are there, but not valid any more, are made again.
        """
        if not self.call.is_main:  # all of it is there
            return {}
        run = self.run(wildcards)
        self.results([run.path])
        return self.call.data.files(run) | self._recipe(run)

    def results(self, paths):
        """The files of the runs at these paths that this call trains; the others are valid."""
        return [self.folder.metrics(path) for path in paths if not self._is_valid(path)]

    def _is_valid(self, path):
        if path not in self.valid:
            self.valid[path] = not self.call.is_forced("train") and self.current(path)
            if not self.valid[path]:
                self.call.make_again([self.folder.metrics(path)])
                if self.folder.has(path) and (damaged := self.folder.damaged_file(path)):
                    self.call.tell(f"{damaged} is not what the run wrote")
        return self.valid[path]

    def recipe_inputs(self, wildcards):
        """Name -> file of what this call makes before a recipe is measured. One that was measured
        for something else, or damaged since, is measured again."""
        if not self.call.is_main:
            return {}
        self._recipe(self.with_recipe(wildcards))
        share = self.run_to_share(wildcards)
        first = self._recipe(share) if share else {}
        return self.call.data.dataset_files(wildcards.dataset) | first

    def _recipe(self, run):
        """{"recipe": file} if the recipe of a Run is not valid yet, else {}."""
        if not run.has_auto:
            return {}
        file = self._recipe_file(run)
        if file not in self.valid:
            # On a cluster any node may measure it.
            processor = recipes.processor_of(file) if self.call.is_on_cluster else None
            is_valid = recipes.is_of(file, run, self._cores_measured(run), processor)
            self.valid[file] = is_valid and not self.call.is_forced("calibrate")
            if not self.valid[file]:
                self.call.make_again([file])
        return {} if self.valid[file] else {"recipe": file}

    def _recipe_file(self, run):
        return self.folder.recipe.format(**run.wildcards, measured=run.measured)

    def _copy_of_recipe(self, run):
        """The copy of a Run's recipe, whose name has a digest of its cache key."""
        return f"{self.folder.plan_file('recipes')}/{recipes.file_name(run)}"

    def threads(self, wildcards, input):
        """The cores of a run: on all nodes if Snakemake packs them, else on one. An exclusive run
        claims every core, even if it uses fewer."""
        run = self.run(wildcards)
        recipe = self._recipe_file(run)
        if run.threads_per_worker == AUTO and recipes.is_sound(recipe):
            run = recipes.fill_in(run, recipe, self.call.most_cores)
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

    def command(self, wildcards, input, resources):
        """The call of scripts/train.py, for the shell."""
        run = self.run(wildcards)
        asked = self.table.conditions[run.path]
        return commands.quoted(
            *(_srun(run, resources) if self._submits(run) else self._call(PROGRAM)),
            *["--settings", run.to_json()],
            *["--data", self.folder.data(run)],
            *(["--fold-of", f"{self.folder.data(run)}/{run.folds_file}"] if run.folds_file else []),
            *(["--recipe", self._recipe_file(run)] if run.has_auto else []),
            *(["--curves"] if asked.curves else []),
            *(["--exclusive"] if asked.exclusive else []),
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
