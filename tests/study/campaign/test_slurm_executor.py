"""Jobs of SLURM: judged by its states, by their results once it has forgotten them."""

import asyncio
import contextlib
import os
import threading
import time
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_allcores_slurm as plugin
from snakemake_executor_plugin_allcores_slurm import InQueue


class Executor(plugin.Executor):
    """Ours, with an sbatch that fails a few times, and without its threads."""

    next_seconds_between_status_checks = 10

    def __init__(self, reasons=(), is_told_to_end=lambda: False):
        self.reasons_of_sbatch, self.taken, self.failed = list(reasons), [], []
        self.ended, self.said, self.noted = {}, [], []
        self.logger = SimpleNamespace(warning=self.said.append)
        self.submitting, self._main_event_loop = threading.local(), None
        self.active_jobs, self.cancelled = [], 0
        self.told, self.answers, self.reasons, self.unknown = None, True, set(), {}
        self.submitted = {}
        self.status_rate_limiter = contextlib.nullcontext()
        settings = SimpleNamespace(init_seconds_before_status_checks=10)
        self.workflow = SimpleNamespace(executor_settings=settings)
        self.begin("logs", is_told_to_end, lambda *noted: self.noted.append(noted))

    def _report_job_submission_threadsafe(self, job_info):
        self.active_jobs.append(job_info)

    def cancel_pending(self):
        self.cancelled += 1

    def report_job_success(self, job):
        self.ended[job.external_jobid] = "well"

    def report_job_error(self, job, msg, aux_logs=()):
        self.failed.append(msg)
        self.ended[getattr(job, "external_jobid", job)] = msg


class Rate(contextlib.AbstractAsyncContextManager):
    async def __aexit__(self, *_):
        return None


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A function of SLURM's states: (numbers of the jobs that go on, how the others have ended)."""
    monkeypatch.setattr(plugin, "seconds_remembered", lambda: 60)
    log = tmp_path / "logs" / "train" / "7.log"
    log.parent.mkdir(parents=True)
    log.touch()
    jobs = [
        SimpleNamespace(
            external_jobid=number,
            job=SimpleNamespace(jobid=int(number), output=[tmp_path / number]),
            aux={"slurm_logfile": log},
        )
        for number in ("7", "8")
    ]
    executor = Executor()
    executor.status_rate_limiter = Rate()

    def look(states):
        found = states and {
            number: InQueue(*(*text.split(), "None")[:2], "") for number, text in states.items()
        }
        monkeypatch.setattr(plugin, "jobs_of_user", lambda: found)
        left = [job for job in jobs if job.external_jobid not in executor.ended]

        async def collect():
            return [job.external_jobid async for job in executor.check_active_jobs(left)]

        return asyncio.run(collect()), executor.ended

    look.said, look.executor, look.log, look.folder = executor.said, executor, log, tmp_path
    return look


def test_the_first_look_may_come_before_anything_is_set():
    """Snakemake's thread starts before __post_init__() is called; an error would end it."""

    async def collect():
        return [job async for job in plugin.Executor.check_active_jobs(object(), [])]

    assert asyncio.run(collect()) == []


def test_a_job_that_is_looked_for_can_be_cancelled_meanwhile(look, monkeypatch):
    """Snakemake's own list is empty while it asks SLURM, which may take a minute."""
    asked = []
    monkeypatch.setattr(plugin, "_answer", lambda *words: asked.append(words))
    executor = look.executor
    executor.submitted = {"7": "one", "8": "other"}
    assert executor.active_jobs == []
    plugin.Executor.cancel_pending(executor)
    assert asked == [("scancel", "--state=PENDING", "7", "8")]
    look({"7": "COMPLETED", "8": "PENDING"})
    assert executor.numbers() == ["8"]


def test_a_job_ends_as_slurm_says(look):
    assert look({"7": "RUNNING", "8": "PENDING"}) == (["7", "8"], {})
    assert look.executor.noted == [(7, True), (8, False)]
    going, ended = look({"7": "COMPLETED", "8": "TIMEOUT"})
    assert going == []
    assert ended == {"7": "well", "8": "SLURM's job 8 ended with the state TIMEOUT. "}
    assert not look.log.parent.exists(), "no empty folder is left"


def test_a_job_that_slurm_has_forgotten_is_judged_by_its_results(look):
    """Not at once: squeue may not have it yet."""
    (look.folder / "7").touch()
    assert look({"8": "SUSPENDED"}) == (["7", "8"], {})
    assert look({"8": "RUNNING"}) == (["8"], {"7": "well"})
    assert look({})[0] == ["8"]
    going, ended = look({})
    assert going == []
    assert ended["8"] == "SLURM's job 8 ended with the state forgotten by SLURM. "


@pytest.mark.parametrize("state", sorted(plugin.ENDED_BADLY))
def test_a_job_that_was_ended_after_its_runs_has_ended_well(look, state):
    (look.folder / "7").touch()
    _, ended = look({"7": state, "8": state})
    assert ended["7"] == "well"
    assert ended["8"] == f"SLURM's job 8 ended with the state {state}. "


def test_what_slurm_says_of_a_job_is_told_with_its_log(look):
    look.log.write_text("epoch 1\nslurmstepd: error: Exceeded job memory limit\nepoch 2\n")
    _, ended = look({"7": "RUNNING", "8": "OUT_OF_MEMORY"})
    said = f"slurmstepd: error: Exceeded job memory limit ({look.log})"
    assert ended["8"] == f"SLURM's job 8 ended with the state OUT_OF_MEMORY: {said}. "


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


def test_looks_become_rarer_but_not_rarer_than_slurm_remembers(look):
    for _ in range(9):
        look({"7": "RUNNING", "8": "RUNNING"})
    assert look.executor.next_seconds_between_status_checks == 20
    look({"7": "COMPLETED", "8": "RUNNING"})
    assert look.executor.next_seconds_between_status_checks == 10


def sbatch(executor, job):
    """In place of the method that our plugin extends."""
    if executor.reasons_of_sbatch:
        executor._report_job_error_threadsafe(job, executor.reasons_of_sbatch.pop(0))
    else:
        executor.taken.append(job)


def report(executor, job, msg):
    executor.report_job_error(job, msg)


@pytest.fixture(autouse=True)
def without_sbatch(monkeypatch):
    monkeypatch.setattr(plugin.SlurmExecutor, "run_job", sbatch)
    monkeypatch.setattr(plugin.SlurmExecutor, "_report_job_error_threadsafe", report)


@pytest.mark.parametrize(
    ("reasons", "taken", "failed"),
    [
        (["Unable to contact slurm controller", "AssocMaxSubmitJobLimit"], ["job"], []),
        (["Invalid account"], [], ["Invalid account"]),
        (["Connection refused", "Invalid account"], [], ["Invalid account"]),
    ],
)
def test_a_job_is_submitted_again_where_waiting_helps(monkeypatch, reasons, taken, failed):
    executor, pauses = Executor(reasons), []
    monkeypatch.setattr(plugin.time, "sleep", pauses.append)
    executor.run_job("job")
    assert (executor.taken, executor.failed) == (taken, failed)
    assert sum(pauses) == sum([5, 10][: len(reasons) - len(failed)])


def test_a_call_that_is_told_to_end_submits_nothing_more():
    told = threading.Event()
    executor = Executor(["Connection refused"] * 1000, told.is_set)
    thread = threading.Thread(target=executor.run_job, args=("job",))
    thread.start()
    time.sleep(0.5)
    told.set()
    thread.join(60)
    assert not thread.is_alive()
    executor.run_job("another")
    assert len(executor.reasons_of_sbatch) == 999 and executor.taken == []
    assert executor.failed == ["it was not submitted, since the invocation is told to end"] * 2
    assert executor.cancelled == 2, "one may have been submitted after the others were cancelled"


@pytest.mark.parametrize(("state", "is_taken"), [("RUNNING", True), ("TIMEOUT", False)])
def test_a_job_that_slurm_has_although_sbatch_failed_is_not_submitted_twice(
    monkeypatch, state, is_taken
):
    logs = {"7": "logs/rule_train/lenet", "8": "logs/rule_train/mlp"}
    states = {number: InQueue(state, "None", f"{log}/{number}.log") for number, log in logs.items()}
    answers = [None, None, states]  # the outage goes on for a while
    monkeypatch.setattr(plugin, "jobs_of_user", lambda: answers.pop(0))
    monkeypatch.setattr(plugin, "get_job_wildcards", lambda job: job.model)
    monkeypatch.setattr(plugin.time, "sleep", lambda seconds: None)
    executor = Executor(["sbatch: error: Socket timed out on send/recv operation"])
    job = SimpleNamespace(name="train", model="mlp")
    executor.run_job(job)
    assert executor.taken == ([] if is_taken else [job])
    assert [one.external_jobid for one in executor.active_jobs] == (["8"] if is_taken else [])


REFUSAL = """SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)'.
    sbatch call:
        sbatch --parsable --wrap="python 'sbatch: error: no'"
"""
TOLD = """QOSMaxSubmitJobPerUserLimit; Batch job submission failed: \
Job violates accounting/QOS policy (job submit limit)"""


def test_why_jobs_wait_is_told_whenever_that_changes(monkeypatch):
    executor = Executor(["Connection refused"] * 2 + [REFUSAL])
    monkeypatch.setattr(plugin.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(plugin, "jobs_of_user", lambda: None)
    executor.run_job("job")
    assert [line.partition("wait: ")[2] for line in executor.said] == ["Connection refused", TOLD]


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def row(number, state, reason="None", output=""):
    """A job as squeue prints it, padded to bytes."""
    fields = zip((number, state, reason, output), (40, 20, 200, 2000), strict=True)
    return b"".join(text.encode().ljust(width) for text, width in fields) + b"\n"


def with_squeue(folder, monkeypatch, *rows):
    (folder / "rows").write_bytes(b"".join(rows))
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\ncat {folder}/rows\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_without_a_partition_slurm_is_not_asked_for_one():
    executor, job = Executor(), SimpleNamespace(resources={})
    executor._partitions = None
    assert executor.get_partition_arg(job) == ""


def test_jobs_are_read_as_squeue_writes_them(tmp_path, monkeypatch):
    reason, log = "(Nodes required for job are DOWN)", "/home/Jos\u00e9/\u6570\u636e/logs/7.log"
    with_squeue(
        tmp_path, monkeypatch, row("7", "RUNNING", "None", log), row("8_3", "PENDING", reason)
    )
    assert plugin.jobs_of_user() == {
        "7": InQueue("RUNNING", "None", log),
        "8_3": InQueue("PENDING", reason, ""),
    }


@pytest.mark.parametrize(("rows", "is_transient"), [([], False), ([row("7", "RUNNING")], True)])
def test_a_job_that_no_limit_can_ever_take_is_refused_for_good(
    tmp_path, monkeypatch, rows, is_transient
):
    with_squeue(tmp_path, monkeypatch, *rows)
    assert plugin.is_transient(POLICY) is is_transient
    assert not plugin.is_transient(f"QOSMaxWallDurationPerJobLimit: {POLICY}")
    assert plugin.is_transient("Socket timed out")


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ([], ["there is no sbatch"]),
        (["sbatch", "scancel"], ["there is no squeue"]),
        (["sbatch", "squeue", "scancel"], ["squeue does not answer"]),
    ],
)
def test_without_slurm_it_is_told(tmp_path, monkeypatch, programs, said):
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\necho no controller >&2; exit 1")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(plugin.problems("logs")) == said


def test_jobs_of_a_call_that_was_killed_are_named(tmp_path, monkeypatch):
    for name in ("sbatch", "scancel"):
        (tmp_path / name).symlink_to("/bin/true")
    ours = [row("7", "RUNNING", output="/mine/logs/rule/7.log")]
    ended = row("8", "COMPLETED", output="/mine/logs/rule/8.log")
    with_squeue(tmp_path, monkeypatch, *ours, ended, row("9", "RUNNING", output="/mine/logs2/9"))
    first, then = plugin.problems("/mine/logs")
    assert first == "job 7 of an earlier invocation: RUNNING"
    assert "scancel 7`" in then
