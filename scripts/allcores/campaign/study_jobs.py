"""What the rules of report.smk ask: choices between candidates, and what each study ends with."""

import json
import shlex

from allcores.analysis import metrics
from allcores.analysis.study import Study
from allcores.campaign import snakemake_internals as internals
from allcores.files import read_json
from allcores.machine import warm_start
from allcores.study import fingerprint, registry
from allcores.study.run import digest

PROGRAMS = registry.LIBRARY.parent


class StudyJob(Study):
    """The job that makes all that a study ends with.

    Args:
        config, table, folder, name: as of Study.
        workflow: Snakemake's.
        warm: the warm process that is asked for the program, if any.
    """

    def __init__(self, config, table, folder, name, workflow, warm):
        super().__init__(config, table, folder, name)
        self.workflow, self.warm = workflow, warm

    def inputs(self, checkpoints):
        """Its runs' files as a rule takes them: where the study selects, each of the final ones as
        soon as it is chosen."""
        if not self.selections:
            return {"runs": [file for path in self.paths for file in self.files_of(path)]}

        def of(selection):
            def when_selected(wildcards):
                checkpoints.select_candidate.get(selection=selection.path)
                return self.files_of(self.folder.chosen(selection))

            return when_selected

        return {f"run_{number}": of(each) for number, each in enumerate(self.selections)}

    def check(self, wildcards):
        """Nothing; has Snakemake make anew what was made of something else."""
        if self.is_outdated:
            internals.force(self.workflow, [self.page])
        return []

    def command(self, again):
        """The call of scripts/report.py, for the shell.

        Args:
            again: the command that makes all of this again.
        """
        words = [
            *warm_start.command(PROGRAMS / "report.py", self.warm),
            *["--config", self.folder.config(self.config)],
            *["--study", self.name],
            *["--again", again],
            *(["--without-missing"] if self.table.missing else []),
        ]
        return shlex.join(map(str, words))


class SelectionJobs:
    """The choices between candidates as jobs, each asked for by the path of its Selection.

    Args:
        config, table, folder: as of Study.
        warm, workflow: as of StudyJob.
    """

    def __init__(self, config, table, folder, warm, workflow=None):
        self.config, self.table, self.folder, self.warm = config, table, folder, warm
        self.workflow = workflow

    def inputs(self, path, checkpoints):
        """What it is judged by; between which candidates is known when the one before is made."""
        selection = self.table.choices[path]
        before = selection.before and checkpoints.select_candidate.get(
            selection=selection.before.path
        )
        file = self.folder.selection(path)
        try:
            if read_json(file).get("made_of") != self._made_of(path):
                internals.force(self.workflow, [file])
        except (ValueError, OSError):  # damaged, gone, or not made yet
            internals.force(self.workflow, [file])
        inner = self.folder.scored(selection).values()
        scores = [f"{self.folder.run(each)}/metrics.json" for paths in inner for each in paths]
        return [*(before.output if before else []), *scores]

    def _made_of(self, path):
        """A digest of all that decides a choice beside the scores."""
        scored = self.folder.scored(self.table.choices[path])
        return digest(json.dumps([self.code(path), scored]))

    def code(self, path):
        """The fingerprint of the program that chooses, and what it chooses by."""
        metric = self._metric(path)
        module = registry.metric(metric).module
        return f"{fingerprint.of_script('select_candidate', module)} {metric}"

    def _metric(self, path):
        return metrics.of_study(self.config, self.table.choices[path].study)[0].name

    def command(self, path, output):
        """The call of scripts/select_candidate.py, for the shell."""
        words = warm_start.command(PROGRAMS / "select_candidate.py", self.warm)
        words = [*words, "--config", self.folder.config(self.config), "--selection", path]
        words += ["--metric", self._metric(path), "--made-of", self._made_of(path)]
        return shlex.join(map(str, [*words, "--output", output]))
