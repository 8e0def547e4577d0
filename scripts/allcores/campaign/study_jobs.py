"""What the rules of report.smk call: choices between candidates, and the reports of studies."""

import functools
import os
import subprocess
import sys
from pathlib import Path

from snakemake.io import ancient

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
        """Functions of wildcards, that give the marks of what is made first: other studies, data,
        runs and choices, and each final run as soon as it is chosen."""
        final = [self._final(selection, checkpoints) for selection in self.selections]
        return [lambda wildcards: self._first(), *final]

    def _first(self):
        marks = [job.mark for job in self._others]
        marks += map(self.call.data.dataset_mark, self.config["studies"][self.name]["datasets"])
        if self.selections:
            # All at once, so that the runs of all selections may share jobs.
            marks += self.call.runs.request(self.call.selections.known_paths(self.selections))
            marks += map(self.call.selections.mark, self.selections)
        else:
            marks += self.call.runs.request(self.paths)
        return [ancient(mark) for mark in marks if mark]

    def _final(self, selection, checkpoints):
        def when_selected(wildcards):
            self.call.selections.wait_for(selection, checkpoints)
            paths = [self.folder.chosen_path(selection)]
            return list(map(ancient, self.call.runs.request(paths)))

        return when_selected

    @property
    def _others(self):
        """The job of the study that this one is compared with, if there is one."""
        other = self.config["studies"][self.name].get("against")
        return [job for job in self.call.studies if job.name == other]

    @functools.cached_property
    def mark(self):
        """The mark of its results, see Call.mark(); None: they are valid, and there is none."""
        problem = None if self._is_valid else ""
        return self.call.mark(f"{self.place}/made", self.known, problem)

    @property
    def _is_valid(self):
        """Whether its results are there, and nothing that they are made of is to be made."""
        return (
            all(map(self.call.selections.is_valid, self.selections))
            and self.call.runs.are_valid(self.paths)
            and all(job.mark is None or Path(job.mark).exists() for job in self._others)
            and not self.is_outdated
        )

    @property
    def marks(self):
        """{"mark": the mark}, for the outputs of a rule; jobs of a cluster make no report."""
        return {"mark": self.mark} if self.call.is_main and self.mark else {}

    def command(self, again, mark):
        """The call of scripts/report.py, for the shell.

        Args:
            again: the command that makes all of this again.
            mark: of its results; None: they are valid without one.
        """
        arguments = [*self.arguments(again), *(["--mark", mark] if mark else [])]
        return commands.of_program("report.py", self.call.warm(PANDAS), *arguments)

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

    def inputs(self, path, checkpoints):
        """What is made first: the choice before, and then the scores of its candidates."""
        selection = self.table.choices[path]
        earlier = []
        if selection.previous:
            self.wait_for(selection.previous, checkpoints)
            earlier = [self.mark(selection.previous)]
        marks = [*earlier, *self.call.runs.request(self._inner(selection))]
        return [ancient(mark) for mark in marks if mark]

    def inputs_of_run(self, path, checkpoints):
        """The choice that suggests a run's values. Without it a run that is named on the command
        line would be trained with those of a candidate that stands for it."""
        selection = self.suggested.get(path)
        if not selection:
            return []
        self.wait_for(selection.suggested_by, checkpoints)
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        mark = self.mark(selection.suggested_by)
        return [ancient(mark)] if mark else []

    def wait_for(self, selection, checkpoints):
        """Have Snakemake ask again when a choice is made, if it is not valid."""
        if not self.is_valid(selection):
            mark = self.mark(selection)
            wildcards = {"selection": selection.path, "made_of": Path(mark).suffix[1:]}
            checkpoints.select_candidate.get(**wildcards)

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

    def mark(self, selection):
        """The mark of a choice, see Call.mark()."""
        return self._mark(selection.path)

    @functools.cache  # noqa: B019
    def _mark(self, path):
        selection = self.table.choices[path]
        problem = None if self.is_valid(selection) else ""
        stem = self.folder.selection(path).removesuffix(".json")
        return self.call.mark(stem, self._made_of(selection), problem)

    def _made_of(self, selection):
        """What is known of what a choice is made of before anything is trained."""
        runs = [self.table.runs[path] for paths in selection.inner.values() for path in paths]
        # The values of candidates that are suggested follow from the choices before.
        known = selection.search or list(map(self.call.runs.current.made_of, runs))
        return repr([self.metric(selection), [run.path for run in runs], known])

    def is_valid(self, selection):
        return self._path_is_valid(selection.path)

    @functools.cache  # noqa: B019
    def _path_is_valid(self, path):
        selection = self.table.choices[path]
        if selection.previous and not self.is_valid(selection.previous):
            return False
        if not self.call.runs.are_valid(self._inner(selection)):
            return False
        return state.is_current_choice(self.folder, selection, self.metric(selection))

    def known_paths(self, selections):
        """Paths of the runs that Selections on the last rung are known to need, as far as choices
        are made."""
        for selection in (rung for last in selections for rung in last.rungs):
            if not selection.previous or self.is_valid(selection.previous):
                yield from self._inner(selection)
            if not selection.next_inner and self.is_valid(selection):
                yield self.folder.chosen_path(selection)

    def _inner(self, selection):
        """Paths of the runs that a Selection compares; their values are suggested by now."""
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        paths = self.folder.scored_paths(selection).values()
        return [path for paths_of_candidate in paths for path in paths_of_candidate]

    def metric(self, selection):
        """The name of the metric by which candidates are compared."""
        return metrics.of_study(self.config, selection.study)[0].name

    def command(self, path, mark):
        """The call of scripts/select_candidate.py, for the shell."""
        selection = self.table.choices[path]
        return commands.of_program(
            "select_candidate.py",
            self.call.warm(PANDAS),
            *["--config", self.folder.config(self.config)],
            *["--selection", path],
            *["--metric", self.metric(selection)],
            *["--output", self.folder.selection(path)],
            *["--mark", mark],
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
