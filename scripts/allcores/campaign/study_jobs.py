"""What the rules of report.smk call: choices between candidates, and the reports of studies."""

import json

from allcores.analysis import metrics
from allcores.analysis.study import Study
from allcores.campaign import commands
from allcores.campaign import snakemake_internals as internals
from allcores.files import read_json
from allcores.machine.warm_start import PANDAS
from allcores.study import fingerprint, registry
from allcores.study.run import digest


class StudyJob(Study):
    """The job that makes all results of a study: tables, figures, report.

    Args:
        call: call.Call.
        name: the study's.
    """

    def __init__(self, call, name):
        super().__init__(call.config, call.table, call.folder, name)
        self.call = call

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
            internals.force(self.call.workflow, [self.page])
        return []

    def command(self, again):
        """The call of scripts/report.py, for the shell.

        Args:
            again: the command that makes all of this again.
        """
        return commands.of_program(
            "report.py",
            self.call.warm(PANDAS),
            *["--config", self.folder.config(self.config)],
            *["--study", self.name],
            *["--again", again],
            *(["--without-missing"] if self.table.missing else []),
        )


class SelectionJobs:
    """The choices between candidates as jobs, looked up by the paths of their Selections.

    Args:
        call: call.Call.
    """

    def __init__(self, call):
        self.call, self.config, self.table, self.folder = call, call.config, call.table, call.folder

    def inputs(self, path, checkpoints):
        """The scores of its candidates, which are known once the choice before it is made."""
        selection, file = self.table.choices[path], self.folder.selection(path)
        # At once: as long as the choice before is not known, Snakemake takes what is there.
        try:
            made = read_json(file)
            made_of = made["made_of"] if not fingerprint.changed(made["loaded"]) else None
        except (ValueError, OSError, KeyError):  # damaged, gone, or not made yet
            internals.force(self.call.workflow, [file])
            made_of = None
        earlier = selection.previous and checkpoints.select_candidate.get(
            selection=selection.previous.path
        )
        if made_of != self._made_of(path):
            internals.force(self.call.workflow, [file])
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
        return commands.of_program(
            "select_candidate.py",
            self.call.warm(PANDAS),
            *["--config", self.folder.config(self.config)],
            *["--selection", path],
            *["--metric", self._metric(path)],
            *["--made-of", self._made_of(path)],
            *["--output", output],
        )
