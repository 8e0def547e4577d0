"""How many cores this process may use, and how many threads it uses."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

# How often a waiting thread of GNU OpenMP polls before it sleeps. The default of 300,000 takes most
# of the time beside other load; docs/cores.md has the measurement.
SPIN_VARIABLE, SPINS = "GOMP_SPINCOUNT", "2000"
# Variables that set the size of thread pools; Snakemake sets them all to the rule's threads.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Variables in which a batch system gives the number of cores of a job on this node, or of a process
# that srun started.
OF_JOB, OF_TASK = ("SLURM_CPUS_ON_NODE", "LSB_DJOB_NUMPROC"), "SLURM_CPUS_PER_TASK"
CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def allowed() -> int:
    """Return how many cores this process may use, at least 1.

    This is the smallest of its affinity mask, cgroup CPU quota, and SLURM or LSF allotment.
    """
    limits = [len(os.sched_getaffinity(0)), quota()]
    names = [*OF_JOB, *([OF_TASK] if "SLURM_STEP_ID" in os.environ else [])]
    limits += [int(os.environ[name]) for name in names if name in os.environ]
    return max(1, int(min(limits)))


def quota() -> float:
    """Return the control group's CPU quota in cores, inf if there is none.

    Version 2 is read first, then version 1. Ancestor groups also have quotas, of which the smallest
    counts.
    """
    folder = own_cgroup()
    files = [group / "cpu.max" for group in (folder, *folder.parents) if group >= CGROUP]
    limits = [file.read_text().split() for file in files if file.exists()]
    if limits:
        return min(
            float("inf") if quota == "max" else int(quota) / int(period) for quota, period in limits
        )
    group, root = group_of_version_1("cpu")
    found = [float("inf")]
    for place in (group, *group.parents):
        files = [place / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
        if place.is_relative_to(root) and all(file.exists() for file in files):
            quota, period = (int(file.read_text()) for file in files)
            found.append(quota / period if quota > 0 else float("inf"))
    return min(found)


def own_cgroup() -> Path:
    """Return the folder of this process's control group (version 2)."""
    paths = [line[4:] for line in MEMBERSHIP.read_text().splitlines() if line.startswith("0::/")]
    return CGROUP / "".join(paths)


def group_of_version_1(controller: str) -> tuple[Path, Path]:
    """Return (folder of this process's control group of version 1, root folder of all such groups).

    In a container, the process's group may be mounted as the root.
    """
    root, place = CGROUP / controller, ""
    for line in MEMBERSHIP.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            place = path.lstrip("/")
    return (root / place if (root / place).is_dir() else root), root


def processor() -> str:
    """Return the name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def has_bf16() -> bool:
    """Return whether the processor has instructions that compute with bf16."""
    flags = {"avx512_bf16", "amx_bf16"}
    return not flags.isdisjoint(Path("/proc/cpuinfo").read_text().split())


def set_thread_variables(threads: int) -> None:
    """Set the size of every thread pool of this process and of those forked from it.

    numpy and torch read the variables when they are imported.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    os.environ.setdefault(SPIN_VARIABLE, SPINS)
    if "torch" in sys.modules:  # imported by a warm process
        import threadpoolctl

        threadpoolctl.threadpool_limits(threads)
