"""How much memory this process, and what it starts, may use."""

import psutil

from allcores.machine import cores


def free_mb():
    """Megabytes that the machine has free, or the control group of this process if that is less."""
    free = psutil.virtual_memory().available
    folder = cores.own_cgroup()
    for group in (folder, *folder.parents):
        limit, used = group / "memory.max", group / "memory.current"
        if limit.exists() and limit.read_text().strip() != "max":
            free = min(free, int(limit.read_text()) - int(used.read_text()) + _reclaimable(group))
    return max(1, free // 1_000_000)


def _reclaimable(group):
    """Bytes of a control group that only cache files."""
    lines = (group / "memory.stat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
