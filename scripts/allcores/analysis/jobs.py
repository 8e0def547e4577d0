"""What the workflow has to know of the job that makes all products of a study."""

import functools
import hashlib
from pathlib import Path

from allcores.analysis import products
from allcores.study import fingerprint, registry

# Prefix of the name of a CSV of the study that this one is compared with.
OTHER = "against_"
TIDY = ("runs", "epochs", "staleness", "classes", "confusion", "utilisation", "missing")


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
        self.products = products.of_study(config, study)
        self.facts = vars(products.facts_of(config, study))

    @property
    def metrics(self):
        return [f"{self.folder.run(path)}/metrics.json" for path in self.table.studies[self.study]]

    @property
    def traces(self):
        return [
            f"{self.folder.run(path)}/utilisation.csv" for path in self.table.studies[self.study]
        ]

    @property
    def of_other(self):
        """Argument -> CSV of the study that this one is compared with."""
        other = self.config["studies"][self.study].get("against")
        names = {name for product in self.products for name in product.made_from}
        return {
            name: self.folder.csv(other, name.removeprefix(OTHER))
            for name in sorted(names)
            if name.startswith(OTHER)
        }

    @property
    def tidy(self):
        return {name: self.folder.csv(self.study, name) for name in TIDY}

    @property
    def page(self):
        return f"{self.folder.study(self.study)}/report.html"

    @property
    def beside(self):
        """The files that Snakemake's report does not show: other formats, captions."""
        names = ["verdict.rst"]
        for product in self.products:
            names += [*product.files[1:], f"captions/{product.name}.rst"]
        return [f"{self.folder.study(self.study)}/{name}" for name in names]

    @property
    def files(self):
        """All that the job makes."""
        shown = [file for file, *_ in self.shown]
        return [*self.tidy.values(), self.page, *shown, *self.beside]

    @property
    def shown(self):
        """(file, file of its caption, labels) of what Snakemake's report shows."""
        folder = self.folder.study(self.study)
        for product in self.products:
            caption = Path.cwd() / folder / "captions" / f"{product.name}.rst"
            labels = {"what": product.title, "kind": product.kind}
            yield f"{folder}/{product.files[0]}", caption, labels

    def code(self):
        """The fingerprint of the program that makes them, and of each product."""
        code = fingerprint.of_script("report", *(product.module for product in self.products))
        return f"{code} {_templates()}"

    def settings(self, wildcards, input):
        """Takes `input` because Snakemake does not record functions of it: each run's identity is
        compared when its results are collected."""
        return [run.to_json() for run in self.table.of(self.study)]

    def asked(self, wildcards, input):
        return {"curves": self.table.curves, "exclusive": self.table.exclusive}

    @property
    def missing(self):
        """Paths of the runs that failed, in a call that makes do without them."""
        return self.table.missing.get(self.study, [])
