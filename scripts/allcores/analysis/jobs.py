"""What the workflow has to know of the job that makes all products of a study."""

import functools
import hashlib
import shlex
from pathlib import Path

from allcores.analysis import metrics, products
from allcores.machine import warm_start
from allcores.study import fingerprint, registry

PROGRAM = registry.LIBRARY.parent / "report.py"
# What is read of a run.
READ = ("metrics.json", "utilisation.csv", "predictions.parquet")
# Prefix of the name of a CSV of the study that this one is compared with.
OTHER = "against_"
# The CSV of what a plan predicts of each run.
PREDICTED = "predicted"
TIDY = (
    "runs",
    "epochs",
    "staleness",
    "classes",
    "confusion",
    "utilisation",
    "candidates",
    "missing",
)


@functools.cache
def _templates():
    """The SHA-256 of the pages' templates."""
    files = sorted((registry.LIBRARY / "analysis" / "templates").iterdir())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class StudyJob:
    """The job that makes tidy CSVs, tables, figures and verdict of one study.

    Args:
        config: the merged config.
        table: its grid.Table.
        folder: its ResultsFolder.
        study: the study's name.
    """

    def __init__(self, config, table, folder, study):
        self.config, self.table, self.folder, self.study = config, table, folder, study
        self.predicted = folder.planned(f"{PREDICTED}.csv")
        # Which runs are final where the study selects, and when, no plan can know.
        planned = Path(self.predicted).exists() and not self.selections
        self.products = products.of_study(config, study, planned)
        self.facts = products.facts_of(config, study)

    @property
    def place(self):
        return self.folder.study(self.study)

    @property
    def data(self):
        """The folder of the prepared datasets."""
        return self.folder.dataset("")

    @property
    def selections(self):
        return self.table.selections_of(self.study)

    @property
    def paths(self):
        """Those of the runs that the study is about: where it selects, of those chosen so far."""
        if self.selections:
            return [path for path in map(self.folder.chosen, self.selections) if path]
        return self.table.studies[self.study]

    @property
    def runs(self):
        return [self.table.runs[path] for path in self.paths]

    def inputs(self, checkpoints):
        """Its runs' files as a rule takes them: where the study selects, each of the final ones as
        soon as it is chosen."""
        if not self.selections:
            return {"runs": [file for path in self.paths for file in self._read(path)]}

        def of(selection):
            def when_selected(wildcards):
                checkpoints.select_candidate.get(selection=selection.path)
                return self._read(self.folder.chosen(selection))

            return when_selected

        return {f"run_{number}": of(each) for number, each in enumerate(self.selections)}

    def asked(self, run):
        """The conditions under which a Run was to be made: see collect.read."""
        path = run.path
        return {"curves": path in self.table.curves, "exclusive": path in self.table.exclusive}

    def _read(self, path):
        """The files of a run that are read."""
        return [f"{self.folder.run(path)}/{name}" for name in READ]

    @property
    def predictions(self):
        """The file of what all its runs have predicted."""
        return f"{self.place}/predictions.parquet"

    @property
    def of_other(self):
        """Argument -> CSV of the study that this one is compared with, or of the plan."""
        other = self.config["studies"][self.study].get("against")
        names = {name for product in self.products for name in product.made_from}
        return {
            name: self.folder.csv(other, name.removeprefix(OTHER))
            for name in sorted(names)
            if name.startswith(OTHER)
        } | ({PREDICTED: self.predicted} if PREDICTED in names else {})

    @property
    def tidy(self):
        return {name: self.folder.csv(self.study, name) for name in TIDY}

    @property
    def page(self):
        return f"{self.place}/report.html"

    @property
    def beside(self):
        """The files that Snakemake's report does not show: other formats, captions."""
        names = ["verdict.rst", "predictions.parquet"]
        for product in self.products:
            names += [*product.files[1:], f"captions/{product.name}.rst"]
        return [f"{self.place}/{name}" for name in names]

    @property
    def files(self):
        """All that the job makes."""
        shown = [file for file, *_ in self.shown]
        return [*self.tidy.values(), self.page, *shown, *self.beside]

    @property
    def shown(self):
        """(file, file of its caption, labels) of what Snakemake's report shows."""
        for product in self.products:
            caption = Path.cwd() / self.place / "captions" / f"{product.name}.rst"
            labels = {"what": product.title, "kind": product.kind}
            yield f"{self.place}/{product.files[0]}", caption, labels

    def code(self):
        """The fingerprint of the program that makes them, and of each product."""
        code = fingerprint.of_script("report", *(product.module for product in self.products))
        return f"{code} {_templates()}"

    def command(self, again, warm):
        """The call of scripts/report.py, for the shell.

        Args:
            again: the command that makes all of this again.
            warm: the warm process that is asked for it, if any.
        """
        words = [
            *warm_start.command(PROGRAM, warm),
            *["--config", self.folder.config(self.config)],
            *["--study", self.study],
            *["--again", again],
            *(["--without-missing"] if self.table.missing else []),
        ]
        return shlex.join(map(str, words))

    @property
    def missing(self):
        """Paths of the runs that failed, in a call that makes do without them."""
        return self.table.missing.get(self.study, [])


class SelectionJobs:
    """The choices between candidates as jobs, each asked for by the path of its Selection.

    Args:
        config, table, folder: as of StudyJob.
        warm: as of its command().
    """

    def __init__(self, config, table, folder, warm):
        self.config, self.table, self.folder, self.warm = config, table, folder, warm

    def inputs(self, path, checkpoints):
        """What it is judged by; between which candidates is known when the one before is made."""
        selection = self.table.choices[path]
        before = selection.before and checkpoints.select_candidate.get(
            selection=selection.before.path
        )
        inner = self.folder.scored(selection).values()
        metrics = [f"{self.folder.run(each)}/metrics.json" for paths in inner for each in paths]
        return [*(before.output if before else []), *metrics]

    def code(self, path):
        """The fingerprint of the program that chooses, and what it chooses by."""
        return f"{fingerprint.of_script('select_candidate')} {self._metric(path)}"

    def _metric(self, path):
        return metrics.of_study(self.config, self.table.choices[path].study)[0].name

    def command(self, path, output):
        """The call of scripts/select_candidate.py, for the shell."""
        words = warm_start.command(PROGRAM.with_name("select_candidate.py"), self.warm)
        words = [*words, "--config", self.folder.config(self.config), "--selection", path]
        words += ["--metric", self._metric(path)]
        return shlex.join(map(str, [*words, "--output", output]))
