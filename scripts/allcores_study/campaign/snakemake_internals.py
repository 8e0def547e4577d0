"""What this project uses of Snakemake that Snakemake does not promise, and why.

It is written for the version that pyproject.toml pins. After an upgrade, run test_internals.py; for
clusters and signals, also run make test-slurm and test_workflow.py. Each thing that a function here
relies on is checked by one of them. docs/adding.md lists the other files that use Snakemake.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from snakemake.jobs import Job
    from snakemake.workflow import Workflow


def is_main_process(workflow: Workflow) -> bool:
    """Return whether the user started this process, and not a job on a cluster."""
    return workflow.is_main_process


def executes(workflow: Workflow) -> bool:
    """Return whether jobs are to be run; known while the graph of jobs is built, not before."""
    return workflow.executor_plugin is not None and not workflow.dryrun


def config_files(workflow: Workflow) -> list[str | Path]:
    """Return the files that the config was read from."""
    return workflow.configfiles


def given_files(workflow: Workflow) -> list[Path]:
    """Return the files that --configfile gave; [] if the project's config is read."""
    return workflow.overwrite_configfiles


def given(workflow: Workflow) -> tuple[list[Path], list[str], str]:
    """Return what rebuilds all of this: --configfile's files, --config's pairs, the Snakefile.

    The Snakefile may use this workflow as a module.
    """
    pairs = workflow.config_settings.config_args or []
    return given_files(workflow), pairs, workflow.main_snakefile


def given_values(workflow: Workflow) -> dict[str, Any]:
    """Return what --config gave, as a dict; numbers in it may be texts."""
    return workflow.config_settings.config or {}


def parsed_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """Return KEY=VALUE texts as --config reads them, for programs that take the same flag."""
    from snakemake.cli import parse_config

    return parse_config(list(pairs))


def default_text(workflow: Workflow, resource: str) -> str:
    """Return the text that --default-resources, as in a profile, gives a resource; "" if none.

    A rule that sets the resource replaces it, even where both are options of sbatch.
    """
    defaults = workflow.resource_settings.default_resources
    found = defaults and defaults._data.get(resource)
    if not found or found.raw is None:
        return ""
    try:
        return str(ast.literal_eval(found.raw))  # it is a Python expression
    except (ValueError, SyntaxError):
        return str(found.raw)


def local_cores(workflow: Workflow) -> int | None:
    """Return the number of cores that jobs share; None on a cluster, whatever --cores says."""
    return None if workflow.nodes else workflow.global_resources["_cores"].value


def jobs_at_once(workflow: Workflow) -> int | None:
    """Return how many jobs a cluster may have at once, by --jobs; None if there is no cluster."""
    return workflow.nodes


def offer_memory(workflow: Workflow, megabytes: int) -> None:
    """Also let runs be packed by memory, unless the user gave --resources mem_mb=..."""
    if "mem_mb" not in workflow.global_resources:
        workflow.register_resource("mem_mb", megabytes)


def one_local_job_at_a_time(workflow: Workflow) -> None:
    """Let jobs with the resource `local_slot` take turns: --local-cores does not do that."""
    workflow.register_resource("local_slot", 1)


def forced_rules(workflow: Workflow) -> set[str] | None:
    """Return the names that --forcerun gave; None for --forceall, which means all of them."""
    settings = workflow.dag_settings
    return None if settings.forceall else {str(name) for name in settings.forcerun}


def jobs_to_run(workflow: Workflow) -> list[Job]:
    """Return the jobs of an invocation that is about to begin."""
    return list(workflow.dag.needrun_jobs())


def submitted_to_slurm(workflow: Workflow, jobs: Iterable[Job]) -> list[Job]:
    """Return those of these jobs that are submitted to SLURM."""
    is_submitting = workflow.executor_plugin.name.endswith("slurm")
    return [job for job in jobs if is_submitting and not job.is_local]


def executor(workflow: Workflow) -> Any:
    """Return the executor of this invocation; on SLURM, that of our plugin."""
    return workflow.scheduler._executor


def slurm_problems(workflow: Workflow, logs: str) -> list[str]:
    """Return lines on why jobs cannot be submitted to SLURM now; see our plugin's problems()."""
    if workflow.executor_plugin.name != "allcores-slurm":
        return ["executor: found slurm; expected allcores-slurm, as in profiles/slurm"]
    import snakemake_executor_plugin_allcores_slurm as plugin

    return list(plugin.problems(logs))


def watch_slurm(workflow: Workflow, logs: str, note_state: Callable[[int, bool], object]) -> None:
    """Tell our plugin for SLURM what depends on the invocation; see Executor.begin()."""
    executor(workflow).begin(
        logs, lambda: is_told_to_finish(workflow) or is_told_to_leave(workflow), note_state
    )


def start_at_once(workflow: Workflow) -> None:
    """Let the scheduler start any number of jobs at a time.

    Its limit per second uses timers. Every invocation waits a second for the last one, and each job
    that ends starts another: after 1,000 jobs it checks 1,000 times a second what could start.
    """
    assert hasattr(workflow.scheduler, "job_rate_limiter")
    workflow.scheduler.job_rate_limiter = None


def finish_running_jobs(workflow: Workflow) -> None:
    """Start no further job and end with those that are running, as on SIGTERM.

    Must not be called by the main thread, which may hold the lock that this takes.
    """
    workflow.scheduler.exit_gracefully()


def leave_running_jobs(workflow: Workflow) -> None:
    """Start no further job and wait for none: the running ones are to be cancelled.

    Must not be called by the main thread either.
    """
    workflow.scheduler.executor_error_callback(KeyboardInterrupt())


def is_told_to_finish(workflow: Workflow) -> bool:
    """Return whether finish_running_jobs() was called."""
    return workflow.scheduler._user_kill is not None


def is_told_to_leave(workflow: Workflow) -> bool:
    """Return whether leave_running_jobs() was called."""
    return isinstance(workflow.scheduler._executor_error, KeyboardInterrupt)


def is_verbose(workflow: Workflow) -> bool:
    """Return whether Snakemake was started with --verbose."""
    return workflow.output_settings.verbose
