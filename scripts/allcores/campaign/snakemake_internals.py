"""What this project uses of Snakemake that Snakemake does not promise, and why.

Written for the version that pyproject.toml pins. After an upgrade run tests/test_internals.py and,
for what concerns clusters and signals, make test-slurm and tests/test_workflow.py: what a function
here relies on is held by one of them. docs/adding.md lists the other files that know Snakemake.
"""

import ast
import asyncio
import functools
import heapq
import threading
import time
from operator import attrgetter
from pathlib import Path

# Seconds until a job that could not be submitted is submitted again: at first, and at most.
AGAIN, LONGEST_PAUSE = 5, 60
SLICE = 0.2  # seconds after which a pause between two looks at jobs asks whether it is over


def is_main_process(workflow):
    """Whether this process was called by the user, and is not that of a job on a cluster.

    Without it each job would check the config, and warm processes would start for one job.
    """
    return workflow.is_main_process


def executes(workflow):
    """Whether jobs are to be run; known while the graph of jobs is built, not before.

    Without it a dry run would try out models, and --summary and the like, too.
    """
    return workflow.executor_plugin is not None and not workflow.dryrun


def config_files(workflow):
    """The files that the config was read from."""
    return workflow.configfiles


def given_files(workflow):
    """The files that --configfile gave; empty: the project's config is read."""
    return workflow.overwrite_configfiles


def given_pairs(workflow):
    """The KEY=VALUE texts that --config gave; to write a command that calls all of this again."""
    return workflow.config_settings.config_args or []


def default_text(workflow, resource):
    """What --default-resources, as in a profile, says of a resource that is a text; "": nothing.

    A rule that sets the resource replaces it, also where both are options of sbatch.
    """
    defaults = workflow.resource_settings.default_resources
    found = defaults and defaults._data.get(resource)
    if not found or found.raw is None:
        return ""
    try:
        return str(ast.literal_eval(found.raw))  # it is an expression of Python's
    except (ValueError, SyntaxError):
        return str(found.raw)


def given_values(workflow):
    """What --config gave, as a dict; numbers in it may be texts."""
    return workflow.config_settings.config or {}


def parsed_pairs(pairs):
    """KEY=VALUE texts as --config reads them, for programs that take the same flag."""
    from snakemake.cli import parse_config

    return parse_config(list(pairs))


def local_cores(workflow):
    """The number of cores that jobs share; None: on a cluster.

    workflow.cores, which is promised, raises an error there.
    """
    return workflow.global_resources["_cores"].value


def jobs_at_once(workflow):
    """How many jobs a cluster may have at once, by --jobs; None: there is no cluster."""
    return workflow.nodes


def offer_memory(workflow, megabytes):
    """Let runs be packed by memory, too, unless the user gave --resources mem_mb=...

    workflow.register_resource() is promised, whether a resource was given is not.
    """
    if "mem_mb" not in workflow.global_resources:
        workflow.register_resource("mem_mb", megabytes)


def take_no_lock_in_handlers():
    """Have Snakemake's handler of SIGTERM work in a thread: it takes a lock that the main thread,
    which it interrupts, may hold, and would wait forever.

    In a call stopping.finish_by_signals() replaces it later; in a cluster's job no hook is called.
    """
    from snakemake.scheduling.job_scheduler import JobScheduler

    exit_gracefully = JobScheduler.exit_gracefully

    def begin(scheduler, *_):
        threading.Thread(target=exit_gracefully, args=(scheduler,), daemon=True).start()

    JobScheduler.exit_gracefully = begin


def forced_rules(workflow):
    """The names that --forcerun gave; None: --forceall, all of them."""
    settings = workflow.dag_settings
    return None if settings.forceall else {str(name) for name in settings.forcerun}


def unlock(folder):
    """Remove the locks of an earlier call whose results lie in a folder, and no others.

    Snakemake's own --unlock removes those of all calls in a project.
    """
    for file in Path(".snakemake", "locks").glob("*.lock"):
        if any(line.startswith(f"{folder}/") for line in file.read_text().splitlines()):
            file.unlink()


def jobs_to_run(workflow):
    """The jobs of a call that is about to begin."""
    return list(workflow.dag.needrun_jobs())


def reconsider(workflow, jobs):
    """Ask the rules again for priorities, and for the resources of some jobs: since the models
    were counted, other ones are estimated."""
    workflow.dag.update_priority()
    forget_resources(jobs)


def forget_resources(jobs):
    """Ask the rules again for the threads and resources of jobs, when they are needed next."""
    for job in jobs:
        job.reset_params_and_resources()
        # It does that once only, but has to do it again when a job's inputs have been made.
        job._params_and_resources_resetted = False


def submitted_to_slurm(workflow, jobs):
    """Those of these jobs that are submitted to SLURM."""
    is_submitting = workflow.executor_plugin.name == "slurm"
    return [job for job in jobs if is_submitting and not job.is_local]


def main_snakefile(workflow):
    """The Snakefile that was called, which may have this workflow as a module."""
    return workflow.main_snakefile


def log_jobs_in(workflow, folder):
    """Have SLURM write the output of jobs to a folder: the plugin's is the same for all configs.

    Its setting, --slurm-logdir, is read before it is known which config this is.
    """
    executor = workflow.scheduler._executor
    assert hasattr(executor, "slurm_logdir")
    executor.slurm_logdir = Path(folder)


def use_default_account(workflow):
    """Leave the account of a job that names none to SLURM, which knows each user's.

    The plugin asks sacct for it by a pipe that no shell sees, so that it warns and finds nothing.
    """
    executor = workflow.scheduler._executor
    assert hasattr(executor, "_fallback_account_arg")
    executor._fallback_account_arg = ""


def seconds_between_looks(workflow):
    """How long the executor for SLURM waits until it looks at jobs for the first time."""
    return workflow.executor_settings.init_seconds_before_status_checks


def watch_jobs_by(workflow, look):
    """Have the executor for SLURM ask for the states of jobs by a function of ours.

    The plugin's own waits for ever for jobs that squeue has forgotten, loses all of them in an
    outage of five minutes, and then asks a database that there may not be.

    Args:
        look: async function of the executor and its jobs; yields those that have not ended.
    """
    executor = workflow.scheduler._executor
    executor.check_active_jobs = functools.partial(look, executor)

    async def sleep_while_going_on():  # else Ctrl-C would wait for the end of a pause
        until = time.monotonic() + executor.next_seconds_between_status_checks
        while executor.wait and time.monotonic() < until:
            await asyncio.sleep(SLICE)

    executor.sleep = sleep_while_going_on


def submit_again(workflow, is_transient, tell):
    """Have the executor for SLURM wait and submit a job again, if that failed for a reason that
    passes: else an outage of a minute, or a limit of jobs, uses up all attempts at once.

    Args:
        is_transient: function of what sbatch said.
        tell: the same, called before each wait.
    """
    executor, failed = workflow.scheduler._executor, threading.local()
    submit, report = executor.run_job, executor._report_job_error_threadsafe

    def report_if_final(job, text):
        failed.for_now = is_transient(text) and not is_told_to_end()
        if failed.for_now:
            tell(text)
        else:
            report(job, text)

    def is_told_to_end():
        return is_told_to_finish(workflow) or is_told_to_leave(workflow)

    def submit_until_taken(job):
        failed.for_now, pause = True, AGAIN
        while failed.for_now:
            failed.for_now = False
            submit(job)
            if failed.for_now:
                for _ in range(pause):
                    time.sleep(0 if is_told_to_end() else 1)
                pause = min(2 * pause, LONGEST_PAUSE)

    executor._report_job_error_threadsafe = report_if_final
    executor.run_job = submit_until_taken


def start_at_once(workflow):
    """Let the scheduler start any number of jobs at a time.

    Its limit per second works by timers, each of which starts the next, and every job that ends
    starts one more: after 1,000 jobs it looks 1,000 times a second for what it could start.
    """
    assert hasattr(workflow.scheduler, "job_rate_limiter")
    workflow.scheduler.job_rate_limiter = None


def choose_among_first(workflow, count):
    """Let the scheduler choose among so many jobs of the highest priority, however many are ready.

    It weighs all that are ready whenever a job ends: of 20,000 that takes as long as a job of a
    second on 20 cores. Its own --scheduler-subsample would take some at random.
    """
    select = workflow.scheduler.job_selector

    def select_among_first(jobs):
        is_many = len(jobs) > count
        return select(set(heapq.nlargest(count, jobs, attrgetter("priority"))) if is_many else jobs)

    workflow.scheduler.job_selector = select_among_first


def finish_running_jobs(workflow):
    """Start no further job and end with those that are running, as on SIGTERM.

    Not to be called by the main thread, which may hold the lock that it takes.
    """
    workflow.scheduler.exit_gracefully()


def leave_running_jobs(workflow):
    """Start no further job and wait for none; cancel_submitted_jobs() is to follow.

    Not to be called by the main thread, either.
    """
    workflow.scheduler.executor_error_callback(KeyboardInterrupt())


def cancel_submitted_jobs(workflow):
    """Cancel the jobs that a cluster still has, once Snakemake has stopped asking for their states.

    Snakemake itself overlooks those whose state it is just asking for.

    Raises:
        WorkflowError: SLURM does not answer.
    """
    executor = workflow.scheduler._executor
    executor.cancel_jobs(executor.active_jobs)


def numbers_of_submitted(workflow):
    """The numbers, as texts, that a cluster has given to jobs that have not ended."""
    return [job.external_jobid for job in workflow.scheduler._executor.active_jobs]


def is_told_to_finish(workflow):
    """Whether finish_running_jobs() was called."""
    return workflow.scheduler._user_kill is not None


def is_told_to_leave(workflow):
    """Whether leave_running_jobs() was called."""
    return isinstance(workflow.scheduler._executor_error, KeyboardInterrupt)


def is_verbose(workflow):
    """Whether Snakemake was called with --verbose."""
    return workflow.output_settings.verbose
