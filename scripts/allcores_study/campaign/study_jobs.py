"""What the rules of report.smk call: the reports of studies."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allcores.machine import lifetime
from allcores_study import programs
from allcores_study.analysis.study import Study
from allcores_study.campaign import commands
from allcores_study.config import grid
from allcores_study.watching import closing
from allcores_study.watching.ledger import UpToDateCheck

if TYPE_CHECKING:
    from snakemake.iocontainers import Wildcards

    from allcores_study.campaign.call import Call
    from allcores_study.config.grid import Table


class StudyJob(Study):
    """The job that makes all results of a study: tables, figures, report, final models.

    Args:
        call: the invocation.
        name: the study's.
        table: the runs that the report needs, without those that it does without.
    """

    def __init__(self, call: Call, name: str, table: Table) -> None:
        super().__init__(call.config, table, call.folder, name)
        self.call = call

    def inputs(self, wildcards: Wildcards) -> list[str]:
        """Return the marks of what is made first: other studies, data and runs."""
        marks = [job.mark for job in self._others]
        marks += map(self.call.ledger.dataset, self.config["studies"][self.name]["datasets"])
        table = self.call.table
        names = [name for name in (self.name, f"{self.name}{grid.FINAL}") if name in table.studies]
        marks += self.call.runs.request(path for name in names for path in table.paths_of(name))
        return self.call.runs.as_inputs(marks)

    @property
    def _others(self) -> list[StudyJob]:
        """The job of the study that this one is compared with, if there is one."""
        other = self.config["studies"][self.name].get("against")
        return [job for job in self.call.studies if job.name == other]

    @functools.cached_property
    def mark(self) -> str | None:
        """The mark of its results."""
        return self.call.ledger.report(self, [job.mark for job in self._others])

    @property
    def marks(self) -> dict[str, str]:
        """{"mark": the mark}, for the outputs of a rule; a cluster's jobs make no report."""
        return {"mark": self.mark} if self.call.is_main and self.mark else {}

    def command(self, again: str, mark: str | None) -> str:
        """Return the command that runs scripts/report.py, for the shell.

        Args:
            again: the command that rebuilds all of this.
            mark: of its results; None if they are valid without one.
        """
        arguments = [*self.arguments(again), *(["--mark", mark] if mark else [])]
        return commands.of_program("report.py", self.call.is_warm, *arguments)

    def arguments(self, again: str) -> list[str]:
        """Return the arguments of scripts/report.py."""
        return [
            *["--config", self.folder.config(self.config)],
            *["--study", self.name],
            *["--again", again],
            *(["--without-missing"] if self.table.missing else []),
        ]


def make_without_missing(call: Call) -> None:
    """Make the tables and figures of the runs that have results, in which the others are marked.

    Args:
        call: an invocation in which jobs have failed.
    """
    if call.is_told_to_end:
        return
    table = UpToDateCheck(call.folder, call.table).table_of_these()
    jobs = [StudyJob(call, name, table) for name in table.reported]
    outdated = [job for job in jobs if job.is_outdated]
    if outdated:
        print("Making tables and figures of the runs that have results", file=sys.stderr)
    for job in sorted(outdated, key=lambda job: bool(job.csvs_of_other)):
        if call.is_told_to_end:
            break
        log = Path(call.folder.report_log(job.name))
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = job.arguments(commands.again(*call.given))
        with log.open("w") as output:
            made = subprocess.run(
                [sys.executable, programs.PROGRAMS / "report.py", *arguments],
                preexec_fn=functools.partial(lifetime.die_with_parent, os.getpid()),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if made.returncode:
            print(*closing.last_lines(log), sep="\n", file=sys.stderr)
