"""What a call of snakemake writes down when it begins, for whoever watches it."""

import contextlib
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from allcores.files import write_text
from allcores.study import fingerprint

FILE = "call.json"
# Of code, by its fingerprint: what it was made of.
CODE = "code"


@dataclass(frozen=True)
class Record:
    """A call of snakemake.

    Attributes:
        started: seconds since 1970.
        host, pid: where it runs.
        cores: onto which it packs its runs; None: a cluster has them.
        spread: whether its runs are on several machines.
        expected: path of each run that it is to make -> seconds it is expected to last.
        trained_since: when the first of its runs began, as `started`; None: none has.
    """

    started: float
    host: str
    pid: int
    cores: int | None
    spread: bool
    expected: dict
    trained_since: float | None = None

    @classmethod
    def of_this_process(cls, cores, spread, expected):
        return cls(time.time(), platform.node(), os.getpid(), cores, spread, expected)

    @classmethod
    def read(cls, folder):
        """The latest call of a ResultsFolder; None: there was none."""
        try:
            return cls(**json.loads(Path(folder.called(FILE)).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder):
        """Write it down, with the code of the runs, so that a change of it can be told."""
        file = Path(folder.called(FILE))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(asdict(self)))

    @property
    def is_going_on(self):
        """Whether its process is there; None: it is on another machine."""
        if self.host != platform.node():
            return None
        with contextlib.suppress(OSError):
            return b"snakemake" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False


def write_code(folder, runs):
    """Write down of which definitions the code of Runs consists, once for each fingerprint."""
    for code, run in {fingerprint.of_run(run): run for run in runs}.items():
        file = code_file(folder, code)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(definitions(run)))


def definitions(run):
    """Module and name -> hash of all that the code of a Run consists of."""
    covered = fingerprint.covered_by_run(run).items()
    return {f"{module} {name}": digest for (module, name), digest in covered}


def code_file(folder, code):
    return Path(folder.called(CODE)) / f"{code.split()[-1]}.json"
