"""Jobs of SLURM: judged by its states, by their results once it has forgotten them."""

import asyncio
import contextlib
import os
import threading
import time
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_allcores_slurm as plugin

from allcores_study.campaign import call, slurm_jobs
from allcores_study.campaign import snakemake_internals as internals
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.watching import journal, slurm


class Executor:
    """What the executor for SLURM has of the interface of executors."""

    next_seconds_between_status_checks = 10

    def __init__(self):
        self.ended, self.status_rate_limiter = {}, contextlib.nullcontext()

    def report_job_success(self, job):
        self.ended[job.external_jobid] = "well"

    def report_job_error(self, job, msg, aux_logs):
        self.ended[job.external_jobid] = msg


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A function of SLURM's states: (numbers of the jobs that go on, how the others have ended)."""
    monkeypatch.setattr(slurm, "seconds_remembered", lambda: 60)
    log = tmp_path / "train" / "7.log"
    log.parent.mkdir()
    log.touch()
    said, results = [], set()
    watch = slurm_jobs.Watch(SimpleNamespace(warning=said.append), 10, results.__contains__)
    jobs = [
        SimpleNamespace(external_jobid=number, job=number, aux={"slurm_logfile": log})
        for number in ("7", "8")
    ]
    executor = Executor()

    def look(states):
        pairs = states and {number: (*text.split(), "None")[:2] for number, text in states.items()}
        monkeypatch.setattr(slurm, "all_states", lambda: pairs)
        left = [job for job in jobs if job.external_jobid not in executor.ended]

        async def collect():
            return [job.external_jobid async for job in watch(executor, left)]

        return asyncio.run(collect()), executor.ended

    look.said, look.executor, look.log, look.results = said, executor, log, results
    return look


def test_a_job_ends_as_slurm_says(look):
    assert look({"7": "RUNNING", "8": "PENDING"}) == (["7", "8"], {})
    going, ended = look({"7": "COMPLETED", "8": "TIMEOUT"})
    assert going == []
    assert ended == {"7": "well", "8": "SLURM's job 8 ended with the state TIMEOUT. "}
    assert not look.log.parent.exists(), "no empty folder is left"


def test_a_job_that_slurm_has_forgotten_is_judged_by_its_results(look):
    """Not at once: squeue may not have it yet."""
    look.results.add("7")
    assert look({"8": "SUSPENDED"}) == (["7", "8"], {})
    assert look({"8": "RUNNING"}) == (["8"], {"7": "well"})
    assert look({})[0] == ["8"]
    going, ended = look({})
    assert going == []
    assert ended["8"] == "SLURM's job 8 ended with the state forgotten by SLURM. "


def test_a_forgotten_job_without_results_is_judged_by_its_log(look):
    look.log.write_text("1 of 1 steps (100%) done\n")
    assert look({})[0] == ["7", "8"]
    going, ended = look({})
    assert going == []
    assert ended["7"] == "well", "its log was deleted, and the other's is no sign of success"
    assert ended["8"] != "well"


def test_an_outage_ends_no_job_and_is_told_once(look):
    for _ in range(5):
        assert look(None) == (["7", "8"], {})
    assert look({"7": "RUNNING", "8": "RUNNING"}) == (["7", "8"], {})
    assert look.said == ["SLURM does not answer; asking again", "SLURM answers again"]


def test_why_jobs_are_pending_is_told_when_it_changes(look):
    for _ in range(2):
        look({"7": "PENDING", "8": "PENDING"})
    assert look.said == [], "SLURM has not said why yet"
    for _ in range(2):
        look({"7": "PENDING Priority", "8": "PENDING Resources"})
    look({"7": "RUNNING Resources", "8": "PENDING Resources"})
    look({"7": "COMPLETED", "8": "PENDING AssocGrpCPUMinutesLimit"})
    assert look.said == [
        "Jobs pending in SLURM: 1 for Priority, 1 for Resources",
        "Jobs pending in SLURM: 1 for AssocGrpCPUMinutesLimit",
    ]


def test_states_and_reasons_are_read_as_squeue_writes_them(tmp_path, monkeypatch):
    lines = ("7 RUNNING None", "8_3 PENDING (Nodes required for job are DOWN)", "9 COMPLETED")
    with_squeue(tmp_path, monkeypatch, "\n".join(f"echo '{line}   '" for line in lines))
    assert slurm.all_states() == {
        "7": ("RUNNING", "None"),
        "8_3": ("PENDING", "(Nodes required for job are DOWN)"),
        "9": ("COMPLETED", ""),
    }


def test_looks_become_rarer_but_not_rarer_than_slurm_remembers(look):
    for _ in range(9):
        look({"7": "RUNNING", "8": "RUNNING"})
    assert look.executor.next_seconds_between_status_checks == 20
    look({"7": "COMPLETED", "8": "RUNNING"})
    assert look.executor.next_seconds_between_status_checks == 10


class Submitting(plugin.Executor):
    """The executor with an sbatch that fails a few times, without its threads."""

    def __init__(self, reasons):
        self.reasons, self.taken, self.failed = list(reasons), [], []
        self.said, self.submitting, self._main_event_loop = [], threading.local(), None
        self.scheduler = SimpleNamespace(_user_kill=None, _executor_error=None)
        logger = SimpleNamespace(warning=self.said.append)
        self.follow("logs", None, slurm_jobs.Submission(self, logger))

    def report_job_error(self, job, msg):
        self.failed.append(msg)


def sbatch(executor, job):
    """In place of the method that our plugin extends."""
    if executor.reasons:
        executor._report_job_error_threadsafe(job, executor.reasons.pop(0))
    else:
        executor.taken.append(job)


@pytest.fixture(autouse=True)
def without_sbatch(monkeypatch):
    monkeypatch.setattr(plugin.SlurmExecutor, "run_job", sbatch)


@pytest.mark.parametrize(
    ("reasons", "taken", "failed"),
    [
        (["Unable to contact slurm controller", "AssocMaxSubmitJobLimit"], ["job"], []),
        (["Invalid account"], [], ["Invalid account"]),
        (["Socket timed out", "Invalid account"], [], ["Invalid account"]),
    ],
)
def test_a_job_is_submitted_again_where_waiting_helps(monkeypatch, reasons, taken, failed):
    executor, pauses = Submitting(reasons), []
    monkeypatch.setattr(plugin.time, "sleep", pauses.append)
    executor.run_job("job")
    assert (executor.taken, executor.failed) == (taken, failed)
    assert sum(pauses) == sum([5, 10][: len(reasons) - len(failed)])


def test_a_call_that_is_told_to_end_submits_nothing_more():
    executor = Submitting(["Socket timed out"] * 1000)
    thread = threading.Thread(target=executor.run_job, args=("job",))
    thread.start()
    time.sleep(0.5)
    executor.scheduler._user_kill = "graceful"
    thread.join(60)
    assert not thread.is_alive()
    assert executor.failed == ["Socket timed out"]


@pytest.mark.parametrize(
    ("batch_job", "is_going_on", "unlocks"),
    [("7", True, True), ("6", True, False), ("6", False, True), ("6", None, False)],
)
def test_a_requeued_allocation_leaves_the_lock_of_another_call(
    tmp_path, monkeypatch, batch_job, is_going_on, unlocks
):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    folder = ResultsFolder(str(tmp_path))
    record = journal.CallRecord(time.time(), os.uname().nodename, 1, 2, False, batch_job, {})
    journal.Journal(folder, record).close()
    monkeypatch.setattr(journal.CallRecord, "is_going_on", property(lambda record: is_going_on))
    unlocked = []
    monkeypatch.setattr(internals, "unlock", unlocked.append)
    call.Call._unlock(SimpleNamespace(folder=folder))
    assert bool(unlocked) == unlocks


@pytest.mark.parametrize("state", sorted(slurm.ENDED_BADLY))
def test_a_job_that_was_ended_after_its_runs_has_ended_well(look, state):
    look.results.add("7")
    _, ended = look({"7": state, "8": state})
    assert ended["7"] == "well"
    assert ended["8"] == f"SLURM's job 8 ended with the state {state}. "


def test_what_slurm_says_of_a_job_is_told_with_its_log(look):
    look.log.write_text("epoch 1\nslurmstepd: error: Exceeded job memory limit\nepoch 2\n")
    _, ended = look({"7": "RUNNING", "8": "OUT_OF_MEMORY"})
    said = f"slurmstepd: error: Exceeded job memory limit ({look.log})"
    assert ended["8"] == f"SLURM's job 8 ended with the state OUT_OF_MEMORY: {said}. "


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def with_squeue(folder, monkeypatch, script):
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(("queue", "is_transient"), [("", False), ("echo 7", True)])
def test_a_job_that_no_limit_can_ever_take_is_refused_for_good(
    tmp_path, monkeypatch, queue, is_transient
):
    with_squeue(tmp_path, monkeypatch, queue)
    assert slurm.is_transient(POLICY) is is_transient
    assert slurm.is_transient("Socket timed out")


def test_names_beyond_ascii_are_read_as_squeue_pads_them(tmp_path, monkeypatch):
    logs, comment = "/home/Jos\u00e9/\u6570\u636e/logs", "rule_train_wildcards_caf\u00e9"
    fields = [b"7", b"RUNNING", f"{logs}/7.log".encode(), comment.encode()]
    padded = b"".join(
        field.ljust(width) for field, width in zip(fields, (40, 20, 2000, 2000), strict=True)
    )
    (tmp_path / "line").write_bytes(padded + b"\n")
    with_squeue(tmp_path, monkeypatch, f"cat {tmp_path / 'line'}")
    assert slurm.states(logs) == {comment: "RUNNING"}


def test_why_jobs_wait_is_told_whenever_that_changes(monkeypatch):
    executor = Submitting(["Socket timed out"] * 2 + ["sbatch: error:\nMaxJobs"])
    monkeypatch.setattr(plugin.time, "sleep", lambda seconds: None)
    executor.run_job("job")
    assert [line.rpartition(": ")[2] for line in executor.said] == ["Socket timed out", "MaxJobs"]


def test_a_job_is_known_by_what_it_makes_whatever_of(tmp_path, monkeypatch):
    """A call that was killed may have left it, and the learning rate have changed since."""
    monkeypatch.setattr(
        slurm,
        "_jobs",
        lambda: [("7", "RUNNING", "logs/7.log", "rule_train_wildcards_a_b_11111111-2")],
    )
    assert slurm.states("logs") == {slurm.comment("train", ["a", "b"]): "RUNNING"}
    rule = SimpleNamespace(name="train")
    assert not list(slurm.still_there([SimpleNamespace(rule=rule, wildcards=["a"])], "logs"))
    job = SimpleNamespace(rule=rule, wildcards=["a", "b", "22222222"])
    (line, *_) = slurm.still_there([job], "logs")
    assert "job 7, RUNNING" in line
