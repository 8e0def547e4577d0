"""How many cores this process may use, and how many threads it uses."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

# The variables that set the size of thread pools; Snakemake sets them all to the rule's threads.
# How often a waiting thread of GNU OpenMP looks before it sleeps, by default 300,000 times: beside
# other load that is most of the time. docs/cores.md has the measurement.
SPIN_VARIABLE, SPINS = "GOMP_SPINCOUNT", "2000"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# The variables in which a batch system says how many cores a job has.
ALLOTMENT_VARIABLES = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "LSB_DJOB_NUMPROC")
CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def allowed() -> int:
    """The smallest of: affinity mask, cgroup CPU quota, what SLURM or LSF allotted. At least 1."""
    limits = [len(os.sched_getaffinity(0)), quota()]
    limits += [int(os.environ[name]) for name in ALLOTMENT_VARIABLES if name in os.environ]
    return max(1, int(min(limits)))


def quota() -> float:
    """The control group's CPU quota in cores, inf if none: version 2 first, then version 1.

    In version 2 each ancestor group has a quota, too: the smallest counts.
    """
    folder = own_cgroup()
    files = [group / "cpu.max" for group in (folder, *folder.parents) if group >= CGROUP]
    limits = [file.read_text().split() for file in files if file.exists()]
    if limits:
        return min(
            float("inf") if quota == "max" else int(quota) / int(period) for quota, period in limits
        )
    try:
        quota = int((CGROUP / "cpu/cpu.cfs_quota_us").read_text())
        period = int((CGROUP / "cpu/cpu.cfs_period_us").read_text())
        return float("inf") if quota < 0 else quota / period
    except OSError:
        return float("inf")


def own_cgroup() -> Path:
    """The folder of this process's control group, of version 2."""
    paths = [line[4:] for line in MEMBERSHIP.read_text().splitlines() if line.startswith("0::/")]
    return CGROUP / "".join(paths)


def processor() -> str:
    """The name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def set_thread_variables(threads: int) -> None:
    """Give every thread pool of this process, and of what it forks, that many threads.

    numpy and torch read the variables when they are imported.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    os.environ.setdefault(SPIN_VARIABLE, SPINS)
    if "torch" in sys.modules:  # imported by a warm process
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)
