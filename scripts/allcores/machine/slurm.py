"""What has to be asked of SLURM before jobs are submitted: it accepts what it will never start."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

# Of what sinfo writes for a time limit: [days-]hours:minutes:seconds, or minutes:seconds.
LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Request:
    """What a job asks for; of memory and CPUs on each node, of time in minutes."""

    rule: str
    nodes: int
    cpus: int
    memory_mb: int
    minutes: int
    partition: str
    account: str

    @classmethod
    def of(cls, job):
        """Of a job of Snakemake's."""
        asked = job.resources
        return cls(
            job.rule.name,
            asked.get("nodes", 1),
            job.threads,
            asked.get("mem_mb", 0),
            asked.get("runtime", 0),
            asked.get("slurm_partition", ""),
            asked.get("slurm_account", ""),
        )

    @property
    def options(self):
        """As options of sbatch."""
        chosen = [("--partition", self.partition), ("--account", self.account)]
        return [
            *(f"{option}={value}" for option, value in chosen if value),
            *(f"--nodes={self.nodes}", f"--ntasks={self.nodes}", f"--cpus-per-task={self.cpus}"),
            *(f"--mem={self.memory_mb}", f"--time={self.minutes}"),
        ]

    def __str__(self):
        nodes = f" on each of {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.rule}, {self.cpus} CPUs and {self.memory_mb} MB{nodes}, {self.minutes} min"


def hopeless(jobs):
    """A line for each kind of job, of these of Snakemake's, that SLURM would never start."""
    for request in sorted({Request.of(job) for job in jobs}, key=str):
        why = _refusal(request) or _too_long(request)
        if why:
            yield (
                f"{request}: {why}. Ask for less, or for another partition, under set-resources in "
                "profiles/slurm/config.yaml"
            )


def _refusal(request):
    """Why sbatch would not take a job; "": it would."""
    asked = subprocess.run(
        ["sbatch", "--test-only", *request.options, "--wrap=true"],
        capture_output=True,
        text=True,
    )
    return "" if asked.returncode == 0 else asked.stderr.strip().splitlines()[-1]


def _too_long(request):
    """Why a job would wait for ever with the reason PartitionTimeLimit; "": it would not."""
    for name, limit in _answers("sinfo", "-o", "%P|%l"):
        chosen = name == request.partition if request.partition else name.endswith("*")
        found = LIMIT.fullmatch(limit)
        if chosen and found:
            days, hours, minutes, _ = (int(part or 0) for part in found.groups())
            most = (days * 24 + hours) * 60 + minutes
            if request.minutes > most:
                return f"the partition {name.rstrip('*')} ends jobs after {most} minutes"
    return ""


def unusable():
    """A line on why jobs cannot be submitted from here, if so."""
    missing = [name for name in ("sbatch", "squeue", "sinfo") if shutil.which(name) is None]
    if missing:
        yield f"there is no {missing[0]}"
        return
    asked = subprocess.run(["squeue", "-h", "--me"], capture_output=True, text=True)
    if asked.returncode:
        yield f"squeue says: {asked.stderr.strip()}"


def still_there(jobs):
    """Lines on jobs of an earlier call, in this folder, that do what these are to do.

    They go on when snakemake is killed, and two at once would train the same run twice. The plugin
    for SLURM writes a job's rule and wildcards into its comment.
    """
    here = os.path.realpath(".")
    names = (f"rule_{job.rule.name}_wildcards_{'_'.join(job.wildcards)}" for job in jobs)
    ours = {name.replace("/", "_") for name in names}
    found = [
        (number, f"job {number}, {state}: {comment}")
        for number, state, folder, comment in _answers("squeue", "--me", "-o", "%i|%T|%Z|%k")
        if os.path.realpath(folder) == here and comment in ours
    ]
    if found:
        yield from (line for _, line in found)
        numbers = " ".join(number for number, _ in found)
        yield f"Wait for them, or `scancel {numbers}`; then call again."


def _answers(program, *options):
    """The lines that a program of SLURM writes, split into fields."""
    said = subprocess.run([program, "-h", *options], capture_output=True, text=True, check=True)
    return [line.split("|") for line in said.stdout.splitlines()]
