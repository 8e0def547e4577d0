"""What a run costs: seconds per phase, CPU time, memory, and how busy its cores were."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import resource
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from allcores.machine import cores, lifetime

SAMPLING_INTERVAL = 0.5  # seconds
STOPPED = 5.0  # seconds; a process whose sample is so late was stopped
# Reading memory takes 4 ms per process. It may take this share of one core's time, but is done at
# least whenever the age of a run has doubled, so that short runs are also measured.
SHARE_FOR_MEMORY = 0.01
TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds, the unit of proc_stat(5)


def duration(seconds: float) -> str:
    """Return a duration in words: "4.8 s", "48 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def core_time(core_seconds: float) -> str:
    """Return core-seconds in words: "36 core-seconds", "0.25 core-hours", "120 core-hours"."""
    hours = core_seconds / 3600
    if hours < 0.1:
        return f"{core_seconds:.0f} core-seconds"
    return f"{hours:.2g} core-hours" if hours < 10 else f"{hours:,.0f} core-hours"


def program_start(pid: int | str) -> float:
    """Return when the program of a process was started, in seconds since 1970, to a hundredth.

    With a warm start, this is before the process existed.
    """
    return _process_start(os.environ.get(lifetime.CLIENT, pid))


def _process_start(pid: int | str) -> float:
    """Return when a process was started, in seconds since 1970, to a hundredth.

    psutil's create_time() adds the time of boot, which Linux gives in whole seconds only.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    after_boot = int(fields[19]) * TICK  # field 22 of proc_pid_stat(5)
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


@dataclass
class Session:
    """What one process has spent on a run; a resumed run has several sessions.

    Attributes:
        trace: [(seconds since 1970, CPU seconds used so far), ...], from the start of the process.
        stopped: seconds for which the whole process was stopped, for example by Ctrl-Z or because
            the machine was suspended.
        peak_memory: largest sum of proportional set sizes seen, in bytes. Shared pages count once.
    """

    trace: list
    peak_memory: int = 0
    stopped: float = 0.0

    @property
    def started(self) -> float:
        return self.trace[0][0]

    @property
    def ended(self) -> float:
        return self.trace[-1][0]

    @property
    def cpu(self) -> float:
        return self.trace[-1][1]


class Watch(threading.Thread):
    """A thread that samples CPU time and memory of this process and its descendants during a run.

    Each sample is appended to a file, so that a process that resumes the run knows what a killed
    one has used.

    Args:
        file: the samples of earlier sessions, if any; those of this one are appended.

    Attributes:
        sessions: [Session, ...]; the last one is this process's.
        cores: numbers of the cores that the run is pinned to; None: not pinned.
        others: CPU seconds that other processes used on these cores; None: not pinned.
    """

    def __init__(self, file: str | Path) -> None:
        super().__init__(daemon=True)
        self.file = Path(file)
        self.sessions = _read_sessions(self.file)
        self.sessions.append(Session([(program_start("self"), 0.0)]))
        self.over = threading.Event()
        self.cores: list[int] | None = None
        self.others: float | None = None
        self._begun, self._memory_again = time.monotonic(), 0.0  # when memory is read again

    def run(self) -> None:
        session = self.sessions[-1]
        with self.file.open("a", buffering=1) as lines:
            lines.write(_line(len(self.sessions), session))
            self.sample()
            # The system's count, since samples miss what a rank does just before it ends.
            before = self._busy() - cpu_seconds()
            while not self._wait():
                self.sample()
                lines.write(_line(len(self.sessions), session))
        self.sample()
        if self.cores:
            self.others = max(0.0, self._busy() - cpu_seconds() - before)

    def _wait(self) -> bool:
        """Wait until the next sample is due, and return whether the run is over.

        If this process was stopped meanwhile, the session's `stopped` is increased.
        """
        session, began = self.sessions[-1], time.monotonic()
        is_over = self.over.wait(SAMPLING_INTERVAL)
        late = time.monotonic() - began - SAMPLING_INTERVAL
        if late > STOPPED:
            session.stopped += late
        return is_over

    def sample(self) -> None:
        me, session = psutil.Process(), self.sessions[-1]
        others = me.children(recursive=True)
        cpu, processes = cpu_seconds(), [me, *others]
        for process in others:
            with contextlib.suppress(psutil.Error, OSError):  # it has ended since
                # With the children that it has waited for; this process's own are in cpu_seconds().
                cpu += sum(process.cpu_times()[:4])
        # The time of a process that has ended but was not waited for yet is known later.
        session.trace.append((time.time(), max(cpu, session.cpu)))
        began = time.monotonic()
        if began >= self._memory_again:
            session.peak_memory = max(session.peak_memory, sum(map(_memory, processes)))
            took = time.monotonic() - began
            age = began - self._begun
            self._memory_again = began + min(took / SHARE_FOR_MEMORY, max(age, SAMPLING_INTERVAL))

    def _busy(self) -> float:
        """Return for how many seconds the run's cores have worked since boot, for any process."""
        if not self.cores:
            return 0.0
        seconds = 0.0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *times = line.split()
            if name[3:].isdigit() and int(name[3:]) in self.cores and name.startswith("cpu"):
                user, nice, system, _, _, irq, soft_irq, stolen = map(int, times[:8])
                seconds += (user + nice + system + irq + soft_irq + stolen) * TICK
        return seconds

    def finish(self) -> None:
        """Take a last sample and stop."""
        self.over.set()
        self.join()


def _line(number: int, session: Session) -> str:
    time, cpu = session.trace[-1]
    return f"{number} {time:.3f} {cpu:.3f} {session.peak_memory} {session.stopped:.3f}\n"


def _read_sessions(file: Path) -> list[Session]:
    """Return the sessions in a file, skipping damaged lines."""
    sessions: dict[float, Session] = {}
    text = file.read_text(errors="replace") if file.exists() else ""
    for line in text.split("\n")[:-1]:
        try:
            number, time, cpu, memory, stopped = map(float, line.split())
        except ValueError:
            continue
        if all(map(math.isfinite, (number, time, cpu, memory, stopped))):
            session = sessions.setdefault(number, Session([]))
            session.trace.append((time, cpu))
            session.peak_memory, session.stopped = int(memory), stopped
    return list(sessions.values())


def _memory(process: Any) -> int:
    """Return the proportional set size of a process in bytes, 0 if it has ended."""
    try:
        return process.memory_full_info().pss
    except (psutil.Error, OSError):
        return 0


def cpu_seconds() -> float:
    """Return the user plus system time of this process and of its children that have ended."""
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def machine() -> dict[str, Any]:
    """Describe the machine that this process runs on: processor, cores, memory, system."""
    return {
        "host": platform.node(),
        "processor": cores.processor(),
        "cores_of_machine": os.cpu_count(),
        "cores_allowed": cores.allowed(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
