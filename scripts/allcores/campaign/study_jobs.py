"""What the rules of report.smk call: choices between candidates, and the reports of studies."""

import json

from allcores.analysis import metrics
from allcores.analysis.study import Study
from allcores.campaign import commands
from allcores.campaign import snakemake_internals as internals
from allcores.files import read_json
from allcores.machine import warm_start
from allcores.study import fingerprint, registry
from allcores.study.run import digest

PROGRAMS = registry.LIBRARY.parent


class StudyJob(Study):
    """The job that makes all results of a study: tables, figures, report.

    Args:
        config, table, folder, name: see Study.
        workflow: Snakemake's.
        warm: name of the warm process that runs the program; None: there is none.
    """

    def __init__(self, config, table, folder, name, workflow, warm):
        super().__init__(config, table, folder, name)
        self.workflow, self.warm = workflow, warm

    def inputs(self, checkpoints):
        """The runs' results as inputs of a rule: where the study selects, those of each final run
        as soon as it is chosen."""
        if not self.selections:
            return {"runs": [self.folder.metrics(path) for path in self.paths]}

        def input_of(selection):
            def when_selected(wildcards):
                checkpoints.select_candidate.get(selection=selection.path)
                return self.folder.metrics(self.folder.chosen_path(selection))

            return when_selected

        final = enumerate(self.selections)
        return {f"run_{number}": input_of(selection) for number, selection in final}

    def check(self, wildcards):
        """No input; has Snakemake make again what was made of something else."""
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
        return commands.quoted(*words)


class SelectionJobs:
    """The choices between candidates as jobs, looked up by the paths of their Selections.

    Args:
        config, table, folder: see Study.
        warm, workflow: see StudyJob.
    """

    def __init__(self, config, table, folder, warm, workflow):
        self.config, self.table, self.folder, self.warm = config, table, folder, warm
        self.workflow = workflow

    def inputs(self, path, checkpoints):
        """The scores of its candidates, which are known once the choice before it is made."""
        selection, file = self.table.choices[path], self.folder.selection(path)
        # At once: as long as the choice before is not known, Snakemake takes what is there.
        try:
            made_of = read_json(file)["made_of"]
        except (ValueError, OSError):  # damaged, gone, or not made yet
            internals.force(self.workflow, [file])
            made_of = None
        earlier = selection.previous and checkpoints.select_candidate.get(
            selection=selection.previous.path
        )
        if made_of != self._made_of(path):
            internals.force(self.workflow, [file])
        inner = self.folder.scored_paths(selection).values()
        scores = [self.folder.metrics(inner_path) for paths in inner for inner_path in paths]
        return [*(earlier.output if earlier else []), *scores]

    def _made_of(self, path):
        """A digest of all that decides a choice, apart from the scores."""
        paths = self.folder.scored_paths(self.table.choices[path])
        return digest(json.dumps([self.code(path), paths]))

    def code(self, path):
        """The fingerprint of the program that chooses, and the metric it compares."""
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
        return commands.quoted(*words, "--output", output)
