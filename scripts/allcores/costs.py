"""What a run costs: seconds per phase, CPU time, memory, and how busy its cores were."""

import os
import platform
import resource
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil

from allcores import cores

SAMPLING_INTERVAL = 0.5  # seconds


class Clock:
    """Seconds per phase of the training; at any time it runs in one phase or is stopped."""

    def __init__(self):
        self.seconds = defaultdict(float)
        self.phase = None

    def enter(self, phase):
        now = time.perf_counter()
        if self.phase is not None:
            self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now

    def stop(self):
        self.enter(None)

    def take(self):
        """The seconds per phase since the last take."""
        taken, self.seconds = dict(self.seconds), defaultdict(float)
        return taken


def process_start(pid="self"):
    """When a process was started, in seconds since 1970, to a hundredth.

    psutil's create_time() adds the time of boot, which Linux tells in whole seconds only.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    after_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5)
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


class Watch(threading.Thread):
    """Samples this process and its descendants while a run lasts.

    Attributes:
        trace: [(seconds since 1970, CPU seconds used so far), ...], from the start of the process.
        peak_memory: the largest sum of proportional set sizes seen, in bytes; shared pages count
            once.
        cpu: seconds for which they have computed so far.
        waited: seconds for which they were ready to and had no core.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.trace = [(process_start(), 0.0)]
        self.peak_memory = 0
        self.over = threading.Event()
        self._of_dead, self._of_living = (0.0, 0.0), {}

    def run(self):
        while not self.over.wait(SAMPLING_INTERVAL):
            self.sample()

    def sample(self):
        me = psutil.Process()
        used, memory = {}, 0
        for process in [me, *me.children(recursive=True)]:
            try:
                times = process.cpu_times()
                used[process.pid] = times.user + times.system, _waited(process.pid)
                memory += process.memory_full_info().pss
            except (psutil.Error, OSError):  # it ended between the listing and the reading
                continue
        ended = [both for pid, both in self._of_living.items() if pid not in used]
        self._of_dead = tuple(map(sum, zip(self._of_dead, *ended, strict=True)))
        self._of_living = used
        self.cpu, self.waited = map(sum, zip(self._of_dead, *used.values(), strict=True))
        self.trace.append((time.time(), self.cpu))
        self.peak_memory = max(self.peak_memory, memory)

    def finish(self):
        """Stop sampling and add a last sample."""
        self.over.set()
        self.join()
        self.sample()


def _waited(pid):
    """Seconds for which the main thread of a process has waited in the queue of a core."""
    _, nanoseconds, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(nanoseconds) / 1e9


def cpu_seconds():
    """User plus system time of this process and of its children that have ended."""
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def machine():
    """The record of where a run was made: processor, cores, memory, versions."""
    import numpy
    import torch

    return {
        "host": platform.node(),
        "processor": cores.processor(),
        "cores_of_machine": os.cpu_count(),
        "cores_allowed": cores.allowed(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "load_average": os.getloadavg()[0],
    }
