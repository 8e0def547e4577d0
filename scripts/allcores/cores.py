"""How many cores this process may use, and how many threads it does."""

import os
import platform
from pathlib import Path

# The variables by which thread pools are sized; Snakemake sets them all to the rule's threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup")


def allowed():
    """The smallest of: affinity mask, cgroup CPU quota, what SLURM allotted. At least 1."""
    limits = [len(os.sched_getaffinity(0)), _cgroup_quota()]
    if "SLURM_CPUS_PER_TASK" in os.environ:
        limits.append(int(os.environ["SLURM_CPUS_PER_TASK"]))
    return max(1, int(min(limits)))


def _cgroup_quota():
    """CPUs' worth of time that the control group may use: version 2 first, then version 1."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return float("inf") if quota == "max" else int(quota) / int(period)
    except OSError:
        pass
    try:
        quota = int((CGROUP / "cpu/cpu.cfs_quota_us").read_text())
        period = int((CGROUP / "cpu/cpu.cfs_period_us").read_text())
        return float("inf") if quota < 0 else quota / period
    except OSError:
        return float("inf")


def processor():
    """The name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def set_thread_variables(threads):
    """Give every thread pool of this process, and of what it forks, that many threads.

    To be called before numpy and torch are imported: that is when they read the variables.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
