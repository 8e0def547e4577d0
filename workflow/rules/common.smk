# What the rules share: the table of runs, and what each run takes.

import gc
import re
import sys
from pathlib import Path

# Snakemake keeps every job in memory, and none of them is garbage: looking for some less often saves a
# large dry run a tenth of its time.
gc.set_threshold(200_000)

sys.path.insert(0, f"{workflow.basedir}/scripts")

from allcores import checks, estimate, fingerprint, products, recipes, study
from allcores.run import PATH
from snakemake.utils import update_config

# The answer to what a config leaves open, for one model with one number of workers.
RECIPE_FILE = "results/recipes/{dataset}/{model}_w{workers}t{threads}.json"

# Numbers inside of what --config gives arrive as texts.
update_config(config, checks.typed(workflow.config_settings.overwrite_config))


def check(cores):
    findings = checks.findings(config, workflow.configfiles, cores)
    if findings:
        # Not a WorkflowError: Snakemake would put lines of this file below the findings.
        sys.exit("\n".join(["The configuration cannot be run:", *findings]))


def local_cores():
    """The cores of this call; None where a cluster has them."""
    return workflow.global_resources["_cores"].value


# A dry run without --cores says 1; a job on a cluster says its own.
told_cores = workflow.is_main_process and local_cores() not in (None, 1)
check(local_cores() if told_cores else None)

TABLE = study.expand(config)
TURNS = TABLE.turns()
# What each study ends with: (study, file).
RESULTS = [(name, file) for name in TABLE.studies for file in products.files(config, name)]

# On a cluster, too, a run that must be alone gets a node to itself. Each function costs every dry run.
CLUSTER_RESOURCES = {}
if TABLE.exclusive:
    CLUSTER_RESOURCES["slurm_extra"] = lambda wildcards: (
        "--exclusive" if run_of(wildcards).path in TABLE.exclusive else ""
    )


def one_of(values):
    return "|".join(re.escape(str(value)) for value in values)


wildcard_constraints:
    **{name: one_of(values) for name, values in TABLE.wildcards().items()},
    study=one_of(TABLE.studies),
    folds="[0-9]+",


onstart:
    check(local_cores())


def run_of(wildcards):
    return TABLE.runs[PATH.format(**wildcards)]


def most_cores():
    """Those of this call; on a cluster, as many as the largest run takes."""
    return local_cores() or max(run.cores for run in TABLE.runs.values())


def run_threads(wildcards, input):
    """A run that must be alone claims every core; it uses its own only."""
    run = run_of(wildcards)
    if run.is_open and Path(input.recipe).exists():
        run = recipes.fill_in(run, input.recipe, most_cores())
    return local_cores() or run.cores if run.path in TABLE.exclusive else run.cores


def urgency(wildcards):
    """Runs that must be alone come first, in turns, so that the others fill the cores without a break;
    of these the longest come first."""
    run = run_of(wildcards)
    return 1e8 - TURNS[run.path] if run.path in TURNS else estimate.seconds(run)


def dataset_choice(wildcards):
    return study.choice(config, "datasets", wildcards.dataset)


def inputs_of(wildcards):
    run = run_of(wildcards)
    folder = f"results/data/{run.dataset.label}"
    found = {"info": f"{folder}/dataset.json"}
    if run.folds is not None:
        found["folds"] = f"{folder}/{run.folds}folds_seed{run.seed}.npy"
    if run.is_open:
        found["recipe"] = RECIPE_FILE.format(**run.wildcards)
    return found


def asking(wildcards):
    """A run that asks for the recipe of these wildcards."""
    return next(
        run
        for run in TABLE.runs.values()
        if run.is_open and all(str(run.wildcards[key]) == value for key, value in wildcards.items())
    )


def train_command(wildcards, input):
    """The call of scripts/train.py for a run."""
    run = run_of(wildcards)
    return [
        *[sys.executable, f"{workflow.basedir}/scripts/train.py"],
        *["--settings", run.to_json()],
        *["--data", f"results/data/{run.dataset.label}"],
        *(["--fold-of", input.folds] if run.folds is not None else []),
        *(["--recipe", input.recipe] if run.is_open else []),
        *([] if config.get("pinning", True) else ["--no-pinning"]),
        *(["--oversubscribe"] if run.path in TABLE.oversubscribe else []),
        *["--output", f"results/runs/{run.path}"],
        # No output of the rule: those of a job that fails are deleted, and from this it resumes.
        *["--work", f"results/checkpoints/{run.path}"],
    ]


def runs_of(wildcards):
    return TABLE.of(wildcards.study)


def baseline_of(wildcards):
    """What speedups refer to: this strategy, with its fewest workers and threads."""
    asked = config["studies"][wildcards.study]
    return asked.get("baseline") or runs_of(wildcards)[0].strategy.label


def of_other(wildcards, name):
    """A tidy CSV of the study against which this one is held."""
    return f"results/studies/{config['studies'][wildcards.study]['against']}/{name}.csv"


def found_in(wildcards):
    """The tables of a study that its verdict is made from."""
    names = products.spoken_of(config, wildcards.study)
    return {name: f"results/studies/{wildcards.study}/{name}.csv" for name in names}


def target_of(wildcards):
    return config["studies"][wildcards.study].get("target_accuracy")


def facts_of(wildcards):
    """What the sentences of a verdict need to know beside the tables."""
    return {
        "baseline": baseline_of(wildcards),
        "exclusive": bool(config["studies"][wildcards.study].get("exclusive")),
        "target": target_of(wildcards),
    }


def references_of(wildcards):
    return config["studies"][wildcards.study].get("references")
