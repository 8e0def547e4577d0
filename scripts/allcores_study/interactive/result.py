"""What a study run from Python returns: its answer, tables, figures, predictions and models."""

from __future__ import annotations

import contextlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from allcores.files import sha256
from allcores_study import yaml_files
from allcores_study.analysis import tidy
from allcores_study.analysis.study import CHECK, MADE, VERDICT
from allcores_study.data import class_values
from allcores_study.interactive import workflow
from allcores_study.records.identity import Record

if TYPE_CHECKING:
    from PIL.Image import Image

    from allcores_study.serving.model import Model

# The figures that answer the question of a study, the first of those that it has.
DRAWING = ("accuracy", "speedup", "loss")
# Columns that a result does not show, as `table` has them, and how it writes numbers.
DETAILS = ["pairs", "difference", "low", "high", "at_most", "p", "conditions", "note"]
SHORT = "{:.4g}".format


class Result:
    """The results of a study, read from its files; in a notebook it shows answer, figure and table.

    Args:
        name: of the study, which is also that of its config.

    Attributes:
        folder: of the study's results.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ValueError(f"name: found {name!r}; expected the name of a study")
        self.name, self.config_file = name, Path(f"{name}.yaml").absolute()
        self.results = Path(workflow.results_of(self.config_file).path).absolute()
        self.folder = self.results / "studies" / name
        self._made = self._read_made()

    def _read_made(self) -> bytes:
        try:
            return (self.folder / MADE).read_bytes()
        except OSError as error:
            raise ValueError(f"{self.name} has no results in {self.results}: {error}") from None

    def _file(self, name: str) -> Path:
        """Return a file of the study, which is as it was written.

        Raises:
            ValueError: it is not, or a later call of this name has written other results.
        """
        if self._read_made() != self._made:
            raise ValueError(
                f"these results of {self.name} were replaced by a later call of that name; "
                f"Result({self.name!r}) has the new ones"
            )
        expected = Record.read(self.folder / MADE).files.get(name)
        with contextlib.suppress(OSError):  # gone
            if expected is None or sha256(self.folder / name) == expected:
                return self.folder / name
        raise ValueError(
            f"{self.folder / name} is not what the study wrote; the same call makes it again"
        )

    @property
    def sentences(self) -> list[str]:
        """The answer, and what else the report says in words."""
        return self._file(VERDICT).read_text().splitlines()

    @property
    def answer(self) -> str:
        """The first of the sentences: which is best, and whether others are worse."""
        return self.sentences[0] if self.sentences else f"{self.name}: nothing to compare"

    @property
    def notes(self) -> list[str]:
        """The sentences on what may be unintended in the data."""
        return [sentence for sentence in self.sentences if sentence.startswith(CHECK)]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Name -> table, as the report has them; scores in 0..1, times in seconds."""
        names = sorted(Record.read(self._file("") / MADE).files)
        files = [self._file(name) for name in names if name.endswith("_table.csv")]
        frames = {file.stem.removesuffix("_table"): tidy.read(file) for file in files}
        return {name: frame for name, frame in frames.items() if len(frame)}

    @property
    def table(self) -> pd.DataFrame:
        """The table that answers the question of the study: a row per model, or per way of use."""
        tables = self.tables
        models = tables.get("models", pd.DataFrame())
        return models if len(models) > 1 else tables.get("speed", models)

    @property
    def runs(self) -> pd.DataFrame:
        """A row per fold, model, schedule, strategy and seed, with scores, times and costs."""
        return tidy.read(self._file("runs.csv"))

    @property
    def predictions(self) -> pd.DataFrame:
        """A row per run and sample of its test fold: what was predicted, and what is true.

        Of classes, `true` and `predicted` are their numbers; `true_class` and `predicted_class` are
        what the data have.
        """
        frame = pd.read_parquet(self._file("predictions.parquet"))
        label = yaml_files.read(self.config_file)["studies"][self.name]["datasets"][0]
        known = Record.content_of(f"{self.results}/data/{label}/dataset.json").get("class_values")
        if known is None:  # of numbers, or the dataset is gone
            return frame
        classes = class_values.restored(known)
        found = {f"{name}_class": classes.take(frame[name]) for name in ("true", "predicted")}
        return frame.assign(**found)

    @property
    def figures(self) -> list[str]:
        """The names that figure() takes."""
        return sorted(
            file.stem.removesuffix("_figure") for file in self._file("").glob("*_figure.png")
        )

    def figure(self, name: str) -> Image:
        """Return a figure of the report as an image, which a notebook shows.

        Raises:
            ValueError: the study has no such figure.
        """
        from PIL import Image

        if name not in self.figures:
            raise ValueError(f"no figure {name!r}; found {', '.join(self.figures)}")
        return Image.open(self._file(f"{name}_figure.png"))

    @property
    def report(self) -> Path:
        """The page with everything."""
        return self._file("report.html")

    def model(self, label: str | None = None) -> Model:
        """Return the trained model that scored best, to use on new data; see Model.of().

        Args:
            label: of the model; None: of any.
        """
        from allcores_study.serving.model import Model  # torch, which a call does without

        return Model.of(self._file(""), label)

    def fit(
        self, label: str | None = None, cores: int | str = "all", profile: str | None = None
    ) -> Model:
        """Train each model once on all samples, as `final=True` does, and return one; see model().

        Hyperparameters are chosen as in each fold. Later calls of the study keep these models up to
        date, until one has `final=False`. Call this in the working directory of the study.

        Raises:
            ValueError: the config is no longer there.
            workflow.StudyError: some runs failed.
        """
        self._file("")  # else it would train what a later call asked for
        file = workflow.file_of(self.name)
        if file.absolute() != self.config_file or not file.exists():
            raise ValueError(f"{self.config_file} is not in the working directory; go there first")
        config = yaml_files.read(file)
        study = config["studies"][self.name]
        study["final"] = True
        with workflow.alone(file):
            workflow.write(file, config)
            workflow.run(file, cores, study["datasets"][0], profile)
        self._made = self._read_made()
        return self.model(label)

    @property
    def _shown(self) -> pd.DataFrame:
        """The part of the table in which rows differ, without the details of the tests."""
        table = self.table.drop(columns=DETAILS, errors="ignore")
        same = [name for name in tidy.SETTINGS if name in table and table[name].nunique() == 1]
        return table.drop(columns=same if len(table) > 1 else [])

    def __repr__(self) -> str:
        said = "\n".join([self.answer, *self.notes])
        table = self._shown.to_string(index=False, na_rep="", float_format=SHORT)
        command = f"{workflow.command()} --configfile {self.config_file.name}"
        files = f"Report: {self.report}\nIn a terminal, `{command}` continues the study."
        return f"{said}\n\n{table}\n\n{files}"

    def _repr_html_(self) -> str:
        drawn = next((name for name in DRAWING if name in self.figures), None)
        svg = self._file(f"{drawn}_figure.svg").read_text() if drawn else ""
        table = self._shown.to_html(index=False, na_rep="", float_format=SHORT)
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in (self.answer, *self.notes))
        return f"{said}{svg[svg.find('<svg') :]}{table}"
