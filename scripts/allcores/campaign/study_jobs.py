"""What the rules of report.smk call: choices between candidates, and the reports of studies."""

import functools
import os
import subprocess
import sys
from pathlib import Path

from allcores import programs
from allcores.analysis import metrics, suggestions
from allcores.analysis.study import Study
from allcores.campaign import closing, commands, state
from allcores.machine import lifetime
from allcores.machine.warm_start import PANDAS


class StudyJob(Study):
    """The job that makes all results of a study: tables, figures, report.

    Args:
        call: call.Call.
        name: the study's.
        table: the grid.Table, without the runs that it does without.
    """

    def __init__(self, call, name, table):
        super().__init__(call.config, table, call.folder, name)
        self.call = call

    def inputs(self, checkpoints):
        """Functions of wildcards, that give the files that this call makes first: results of runs,
        choices, the results of each final run as soon as it is chosen, data, other studies."""
        final = [self._final(selection, checkpoints) for selection in self.selections]
        return [lambda wildcards: self._first(), *final]

    def _first(self):
        files = [file for job in self._others for file in job.to_make]
        for label in self.config["studies"][self.name]["datasets"]:
            files += self.call.data.dataset_files(label).values()
        if self.selections:
            # All at once, so that the runs of all selections may share jobs.
            self.call.runs.request(self.call.selections.known_paths(self.selections))
            files += self.call.selections.files(self.selections)
        else:
            files += self.call.runs.request(self.paths)
        if files or self.is_outdated:
            self.call.make_again([self.page])
        return files

    def _final(self, selection, checkpoints):
        def when_selected(wildcards):
            if self.call.selections.files([selection]):
                checkpoints.select_candidate.get(selection=selection.path)
            return self.call.runs.request([self.folder.chosen_path(selection)])

        return when_selected

    @property
    def _others(self):
        """The job of the study that this one is compared with, if there is one."""
        other = self.config["studies"][self.name].get("against")
        return [job for job in self.call.studies if job.name == other]

    @property
    def to_make(self):
        """The page, if this call makes it."""
        return [self.page] if self._first() or self.is_outdated else []

    def command(self, again):
        """The call of scripts/report.py, for the shell.

        Args:
            again: the command that makes all of this again.
        """
        return commands.of_program("report.py", self.call.warm(PANDAS), *self.arguments(again))

    def arguments(self, again):
        """Those of scripts/report.py."""
        return [
            *["--config", self.folder.config(self.config)],
            *["--study", self.name],
            *["--again", again],
            *(["--without-missing"] if self.table.missing else []),
        ]


class SelectionJobs:
    """The choices between candidates as jobs, looked up by the paths of their Selections.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.table, self.folder = call, call.config, call.table, call.folder
        self.valid = {}  # path -> whether the choice is there, and would be the same now

    def inputs(self, path, checkpoints):
        """What this call makes first: the choice before, and then the scores of its candidates."""
        selection = self.table.choices[path]
        self.files([selection])  # so that it is made again
        earlier = self.files([selection.previous] if selection.previous else [])
        if earlier:
            checkpoints.select_candidate.get(selection=selection.previous.path)
        return [*earlier, *self.call.runs.request(self._inner(selection))]

    def inputs_of_run(self, path, checkpoints):
        """The choice that suggests a run's values, if this call makes it. Else a run that is named
        on the command line would be trained with those of a candidate that stands for it."""
        selection = self.suggested.get(path)
        if not selection:
            return []
        made = self.files([selection.suggested_by])
        if made:
            checkpoints.select_candidate.get(selection=selection.suggested_by.path)
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        return made

    @functools.cached_property
    def suggested(self):
        """Path of a run whose values are suggested -> the Selection that compares it."""
        return {
            path: selection
            for selection in self.table.choices.values()
            if selection.suggested_by
            for label, paths in selection.inner.items()
            for path in (*paths, selection.final[label])
        }

    def files(self, selections):
        """The files of those of these Selections that this call makes."""
        return [
            self.folder.selection(selection.path)
            for selection in selections
            if not self._is_valid(selection)
        ]

    def _is_valid(self, selection):
        if selection.path not in self.valid:
            is_forced = self.call.is_forced("select_candidate")
            self.valid[selection.path] = not is_forced and self._is_current(selection)
            if not self.valid[selection.path]:
                self.call.make_again([self.folder.selection(selection.path)])
        return self.valid[selection.path]

    def _is_current(self, selection):
        if selection.previous and not self._is_valid(selection.previous):
            return False
        if not self.call.runs.are_valid(self._inner(selection)):
            return False
        return state.is_current_choice(self.folder, selection, self.metric(selection))

    def known_paths(self, selections):
        """Paths of the runs that Selections on the last rung are known to need, as far as choices
        are made."""
        for selection in (rung for last in selections for rung in last.rungs):
            if not selection.previous or self._is_valid(selection.previous):
                yield from self._inner(selection)
            if not selection.next_inner and self._is_valid(selection):
                yield self.folder.chosen_path(selection)

    def _inner(self, selection):
        """Paths of the runs that a Selection compares; their values are suggested by now."""
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        paths = self.folder.scored_paths(selection).values()
        return [path for paths_of_candidate in paths for path in paths_of_candidate]

    def metric(self, selection):
        """The name of the metric by which candidates are compared."""
        return metrics.of_study(self.config, selection.study)[0].name

    def command(self, path, output):
        """The call of scripts/select_candidate.py, for the shell."""
        selection = self.table.choices[path]
        return commands.of_program(
            "select_candidate.py",
            self.call.warm(PANDAS),
            *["--config", self.folder.config(self.config)],
            *["--selection", path],
            *["--metric", self.metric(selection)],
            *["--output", output],
        )


def make_without_missing(call):
    """Make the tables and figures of the runs that have results, in which the others are marked.

    Args:
        call: call.Call, of which some jobs have failed.
    """
    call.folder.store.read_again()
    if not any(map(call.folder.has, call.table.runs)):
        return
    table = call.folder.without_missing(call.table)
    jobs = [StudyJob(call, name, table) for name in table.studies]
    outdated = [job for job in jobs if job.is_outdated]
    if outdated:
        print("Tables and figures of the runs that have results are made", file=sys.stderr)
    for job in sorted(outdated, key=lambda job: bool(job.csvs_of_other)):
        log = Path(call.folder.report_log(job.name))
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = map(str, job.arguments(commands.again(*call.given)))
        with log.open("w") as output:
            made = subprocess.run(
                [sys.executable, programs.PROGRAMS / "report.py", *arguments],
                preexec_fn=functools.partial(lifetime.die_with_parent, os.getpid()),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if made.returncode:
            print(*closing.last_lines(log), sep="\n", file=sys.stderr)
