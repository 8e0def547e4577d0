"""How much memory this process and those it starts may use."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from allcores.machine import cores

# Files with the limit and the use of a control group, and the line of memory.stat with the part
# that only caches files, in version 2 and in version 1 (RHEL 8 and before).
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_mb() -> int:
    """Return the free megabytes of the machine, control group or SLURM job, whichever is least."""
    free = psutil.virtual_memory().available
    groups = [(group, VERSION_2) for group in _with_parents(cores.own_cgroup(), cores.CGROUP)]
    own_group, root = cores.group_of_version_1("memory")
    groups += [(group, VERSION_1) for group in _with_parents(own_group, root)]
    for group, (limit, used, cached) in groups:
        if (group / limit).exists() and (group / limit).read_text().strip() != "max":
            room = int((group / limit).read_text()) - int((group / used).read_text())
            free = min(free, room + _reclaimable(group, cached))
    allotted = _of_slurm()
    return max(1, min(free // 1_000_000, allotted) if allotted else free // 1_000_000)


def _of_slurm() -> int:
    """Return the megabytes that SLURM gives this job on a node; 0: no job, or all of the node's."""
    of_node, of_core, count = (
        int(os.environ.get(f"SLURM_{name}", 0))
        for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE")
    )
    return of_node or of_core * count


def _with_parents(group: Path, root: Path) -> list[Path]:
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]


def _reclaimable(group: Path, name: str) -> int:
    """Return the bytes of a control group that only cache files: line `name` of memory.stat."""
    lines = (group / "memory.stat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{name} "))
