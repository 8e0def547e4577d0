"""Queries to SLURM, some of them before submission: it accepts jobs that it will never start."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from snakemake.jobs import Job

# What sbatch prints where waiting helps: limits on submitted jobs, and outages.
TRANSIENT = (
    *("MaxSubmitJob", "MaxJobs", "job submit limit", "temporarily unable to accept job"),
    *("Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted"),
    *("Connection refused", "Resource temporarily unavailable", "Connection timed out"),
)
OF_POLICY = "Job violates accounting/QOS policy"
# States of a job that ended badly.
ENDED_BADLY = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    *("PREEMPTED", "REVOKED"),
}
NO_NODE = "node configuration is not available"  # sbatch also prints this for drained nodes
# How the comments of shared jobs begin.
SHARED = "rule_train_several_"
# A time limit as sinfo writes it: [days-]hours:minutes:seconds, or minutes:seconds.
LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Request:
    """What a job requests: CPUs and memory on each node, time in minutes."""

    rule: str
    nodes: int
    cpus: int
    memory_mb: int
    minutes: int
    partition: str
    account: str
    further: tuple[str, ...]  # options of sbatch, passed on as they are

    @classmethod
    def of(cls, job: Job) -> Request:
        """Return the request of a job of Snakemake."""
        resources = job.resources
        return cls(
            job.rule.name,
            resources.get("nodes", 1),
            job.threads,
            resources.get("mem_mb", 0),
            resources.get("runtime", 0),
            resources.get("slurm_partition", ""),
            resources.get("slurm_account", ""),
            (
                *(
                    f"--{name}={resources[name]}"
                    for name in ("qos", "constraint")
                    if resources.get(name)
                ),
                *shlex.split(resources.get("slurm_extra", "")),
            ),
        )

    @property
    def options(self) -> list[str]:
        """The request as options of sbatch."""
        chosen = [("--partition", self.partition), ("--account", self.account)]
        return [
            *(f"{option}={value}" for option, value in chosen if value),
            *(f"--nodes={self.nodes}", f"--ntasks={self.nodes}", f"--cpus-per-task={self.cpus}"),
            *(f"--mem={self.memory_mb}", f"--time={self.minutes}", *self.further),
        ]

    def __str__(self) -> str:
        nodes = f" on each of {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.rule}, {self.cpus} CPUs and {self.memory_mb} MB{nodes}, {self.minutes} min"


def hopeless(jobs: Iterable[Job]) -> Iterator[str]:
    """Yield a line for each kind of these jobs that SLURM would never start."""
    for request in sorted({Request.of(job) for job in jobs}, key=str):
        reason = _refusal(request) or _too_long(request)
        if reason:
            yield (
                f"{request}: {reason}; request less or another partition, by set-resources in the "
                f"profile or --set-resources {request.rule}:slurm_partition=NAME"
            )


def _refusal(request: Request) -> str:
    """Return why no node could ever run a job; "" if one could, though it may be drained now."""
    answer = subprocess.run(
        ["sbatch", "--test-only", *request.options, "--wrap=true"],
        capture_output=True,
        text=True,
    )
    if answer.returncode == 0:
        return ""
    reason = answer.stderr.strip().splitlines()[-1]
    could_be = is_transient(reason) or (NO_NODE in reason and _has_nodes_for(request))
    return "" if could_be else reason


def _has_nodes_for(request: Request) -> bool:
    """Return whether enough nodes of the partition are large enough, whatever state they are in."""
    large = {
        node
        for partition, node, cpus, memory in _answers("sinfo", "-N", "-o", "%P|%N|%c|%m")
        if _is_of(request, partition)
        and int(cpus) >= request.cpus
        and int(memory) >= request.memory_mb
    }
    return len(large) >= request.nodes


def _is_of(request: Request, partition: str) -> bool:
    """Return whether a request goes to a partition.

    Args:
        partition: as sinfo prints it, with * if it is the default.
    """
    return partition.rstrip("*") == request.partition or (
        partition.endswith("*") and not request.partition
    )


def _too_long(request: Request) -> str:
    """Return why a job would wait forever because of its time limit; "" if it would not."""
    for name, limit in _answers("sinfo", "-o", "%P|%l"):
        match = LIMIT.fullmatch(limit)
        if _is_of(request, name) and match:
            days, hours, minutes, _ = (int(part or 0) for part in match.groups())
            most = (days * 24 + hours) * 60 + minutes
            if request.minutes > most:
                return f"the partition {name.rstrip('*')} ends jobs after {most} minutes"
    return ""


def unusable() -> Iterator[str]:
    """Yield a line with the reason why jobs cannot be submitted from here, if they cannot."""
    missing = [name for name in ("sbatch", "squeue", "sinfo") if shutil.which(name) is None]
    if missing:
        yield f"there is no {missing[0]}"
        return
    answer = subprocess.run(["squeue", "-h", "--me"], capture_output=True, text=True)
    if answer.returncode:
        yield f"squeue failed: {answer.stderr.strip()}"


def is_transient(text: str) -> bool:
    """Return whether sbatch may accept a job later that it refused for this reason.

    It prints the same for every limit of a QOS. A limit on the number of jobs passes when one of
    the user's jobs ends; one that a single job exceeds never does. So the refusal is final if the
    user has no job.
    """
    if OF_POLICY in text and not _has_jobs():
        return False
    return any(reason in text for reason in TRANSIENT)


def _has_jobs() -> bool:
    """Return whether this user has jobs that have not ended; True if SLURM does not answer."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["squeue", "-h", "--me", "--format=%i"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return bool(answer.stdout.strip())
    return True


def all_states() -> dict[str, tuple[str, str]] | None:
    """Return number -> (state, reason for it) of each of the user's jobs that SLURM remembers.

    The result is None if SLURM does not answer.
    """
    command = ["squeue", "-h", "--me", "--states=all", "--Format=JobArrayID:40,State:20,Reason:200"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        parts = (line.split(maxsplit=2) for line in answer.stdout.splitlines())
        return {number: (state, " ".join(reason).strip()) for number, state, *reason in parts}
    return None


def cancel_pending(numbers: Iterable[str]) -> None:
    """Cancel those of these jobs that have not begun, if SLURM answers."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["scancel", "--state=PENDING", *numbers]
        subprocess.run(command, capture_output=True, timeout=60, check=False)


def seconds_remembered() -> int:
    """Return for how many seconds SLURM remembers ended jobs: MinJobAge; 300 if it is unknown."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["scontrol", "show", "config"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        if found := re.search(r"MinJobAge\s*=\s*(\d+)", answer.stdout):
            return int(found[1])
    return 300


def is_in_queue(number: str) -> bool | None:
    """Return whether a job has not ended yet; None if there is no SLURM to ask here."""
    with contextlib.suppress(OSError):
        command = ["squeue", "-h", "-j", number]
        return bool(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    return None


def states(logs: str) -> dict[str, str] | None:
    """Return comment -> state of the jobs that have not ended; None if there is no SLURM here.

    Args:
        logs: see still_there().
    """
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        jobs = [job for job in _jobs() if job[2].startswith(f"{logs}/")]
        return {_without_mark(text): state for _, state, _, text in jobs}
    return None


def comment(rule: str, wildcards: Iterable[str]) -> str:
    """Return the comment that the SLURM plugin gives a job, as squeue shows it, without its mark.

    A job that makes the same thing from something else counts as the same job.
    """
    return _without_mark(f"rule_{rule}_wildcards_{'_'.join(wildcards)}".replace("/", "_"))


def _without_mark(text: str) -> str:
    return re.sub(r"_[0-9a-f]{8}(-[0-9]+)?$", "", text)


def still_there(jobs: Iterable[Job], logs: str) -> Iterator[str]:
    """Yield lines on jobs of an earlier invocation that do the same as these.

    They continue when snakemake is killed, and two at once would train the same run twice. An array
    may hold any of these jobs, but has the comment of only one; a shared job may hold any runs.

    Args:
        logs: the folder into which only this config's jobs write.
    """
    comments = {comment(job.rule.name, job.wildcards) for job in jobs}
    active = [
        (number, f"job {number}, {state}: {text}")
        for number, state, log, text in _jobs()
        if log.startswith(f"{logs}/")
        and (_without_mark(text) in comments or "_" in number or text.startswith(SHARED))
    ]
    if active:
        yield from (line for _, line in active)
        numbers = " ".join(number for number, _ in active)
        yield f"Wait for them, or run `scancel {numbers}`; then run snakemake again."


def _jobs() -> Iterator[tuple[str, ...]]:
    """Yield (number, state, output file, comment) of each of the user's jobs."""
    widths = {"JobArrayID": 40, "State": 20, "StdOut": 2000, "Comment": 2000}
    fields = ",".join(f"{field}:{width}" for field, width in widths.items())
    command = ["squeue", "-h", "--me", f"--Format={fields}"]
    # squeue pads fields to a number of bytes, not of characters.
    answer = subprocess.run(command, capture_output=True, check=True)
    ends = list(accumulate(widths.values()))
    for line in answer.stdout.splitlines():
        parts = (line[start:end] for start, end in pairwise([0, *ends]))
        yield tuple(part.decode(errors="replace").strip() for part in parts)


def _answers(program: str, *options: str) -> list[list[str]]:
    """Return the lines that a program of SLURM prints, split into fields."""
    answer = subprocess.run([program, "-h", *options], capture_output=True, text=True, check=True)
    return [line.split("|") for line in answer.stdout.splitlines()]
