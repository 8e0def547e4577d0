"""What the workflow has to know of the tidy CSVs, tables, figures and verdict of each study."""

from allcores.analysis import products
from allcores.study import fingerprint

# Prefix of the name of a CSV of the study that this one is compared with.
OTHER = "against_"


class StudyJobs:
    """What comes after the runs of a config, asked for by the wildcards `study` and `product`.

    Args:
        config: the merged config.
        table: its grid.Table.
        folder: its ResultsFolder.
    """

    def __init__(self, config, table, folder):
        self.config, self.table, self.folder = config, table, folder

    def metrics(self, wildcards):
        return [f"{self.folder.run(run.path)}/metrics.json" for run in self.runs(wildcards)]

    def traces(self, wildcards):
        return [f"{self.folder.run(run.path)}/utilisation.csv" for run in self.runs(wildcards)]

    def runs(self, wildcards):
        return self.table.of(wildcards.study)

    def product(self, wildcards):
        return products.known()[wildcards.product]

    def inputs(self, wildcards):
        """Argument -> CSV that a product is made from."""
        other = self.config["studies"][wildcards.study].get("against")
        return {
            name: self.folder.csv(other, name.removeprefix(OTHER))
            if name.startswith(OTHER)
            else self.folder.csv(wildcards.study, name)
            for name in self.product(wildcards).made_from
        }

    def facts(self, wildcards):
        """Facts as a dict; None: the product takes none, and is not made anew when they change."""
        return self.all_facts(wildcards) if self.product(wildcards).takes_facts else None

    def all_facts(self, wildcards):
        return vars(products.facts_of(self.config, wildcards.study))

    def caption(self, wildcards, input):
        """Takes `input` because Snakemake does not record functions of it: a changed caption does
        not make the product again."""
        return self.product(wildcards).caption.format(**self.all_facts(wildcards))

    def labels(self, wildcards):
        """What Snakemake's report calls a product."""
        return {"what": self.product(wildcards).title, "kind": self.product(wildcards).kind}

    def code(self, wildcards):
        product = self.product(wildcards)
        return fingerprint.of_script(product.kind, product.module)

    def spoken_of(self, wildcards):
        """The names of the products that have something to say in the verdict."""
        return [product.name for product in self._spoken_of(wildcards)]

    def inputs_of_verdict(self, wildcards):
        spoken_from = [name for each in self._spoken_of(wildcards) for name in each.spoken_from]
        names = ("runs", "missing", *spoken_from)
        return {name: self.folder.csv(wildcards.study, name) for name in names}

    def code_of_verdict(self, wildcards):
        modules = [product.module for product in self._spoken_of(wildcards)]
        return fingerprint.of_script("verdict", *modules)

    def _spoken_of(self, wildcards):
        return products.spoken_of(self.config, wildcards.study)
