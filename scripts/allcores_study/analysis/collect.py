"""Gather the results of a study's runs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from allcores_study.analysis import comparison, metrics, selection, tidy
from allcores_study.data import storage
from allcores_study.records import run_files

if TYPE_CHECKING:
    from allcores_study.analysis.study import Study


def of_study(study: Study) -> dict[str, Any]:
    """Return name -> frame of each tidy CSV of a study, and of the `predictions` of its runs.

    These are whole for runs of the baseline, and for all if samples are in groups; of others there
    is only which samples they were scored on. The prepared datasets are `datasets`, label ->
    Dataset, without those that no longer exist; `results` are (metrics, folder) of each run.
    """
    all_metrics, paths, missing = [], [], list(study.missing)
    for run in study.runs:
        folder = Path(study.folder.run(run.path))
        try:
            all_metrics.append(run_files.metrics(folder))
            paths.append(run.path)
        except ValueError as error:
            if not study.missing:
                raise
            print(error)
            missing.append(run.path)
    folders = [Path(study.folder.run(path)) for path in paths]
    pairs = list(zip(all_metrics, folders, strict=True))
    measured = [metrics.measured(run, folder, study.facts.metrics) for run, folder in pairs]
    names = ("epochs", "staleness", "classes", "outputs", "confusion")
    frames = {name: getattr(tidy, name)(all_metrics) for name in names} | {
        "runs": tidy.runs(all_metrics, measured).assign(path=paths),
        "utilisation": of_all(pairs, lambda run, _: utilisation(run)),
        "candidates": selection.candidates(study, all_metrics, measured),
        "missing": pd.DataFrame({"run": missing, "log": [study.log(path) for path in missing]}),
    }
    datasets = {}
    for label in study.infos:
        with contextlib.suppress(ValueError):  # damaged meanwhile
            datasets[label] = storage.open_dataset(study.folder.dataset(label))
    has_groups = any(data.groups is not None for data in datasets.values())
    whole = [pair for pair in pairs if has_groups or _is_baseline(pair[0], study)]
    others = [pair for pair in pairs if pair not in whole]
    parts = [predictions_of_all(whole), of_all(others, _samples)]
    predictions = pd.concat([part for part in parts if len(part)] or parts[:1])
    frames["predictions"] = with_groups(predictions, datasets)
    frames["runs"] = frames["runs"].merge(_test_samples(frames["predictions"]), "left", tidy.RUN)
    return frames | {"datasets": datasets, "results": pairs}


def _is_baseline(run: dict[str, Any], study: Study) -> bool:
    return run["settings"]["strategy"]["label"] == study.facts.baseline


def of_all(
    runs: Iterable[tuple[dict[str, Any], Path]],
    read: Callable[[dict[str, Any], Path], pd.DataFrame],
) -> pd.DataFrame:
    """Concatenate read(run, folder) of all runs, with columns that name the run.

    Args:
        runs: (metrics, folder) of each run, see read().
    """
    parts = [
        pd.DataFrame(tidy.identify(run), index=[0]).merge(read(run, folder), how="cross")
        for run, folder in runs
    ]
    return pd.concat(parts) if parts else pd.DataFrame(columns=tidy.RUN)


def predictions_of_all(
    runs: Iterable[tuple[dict[str, Any], Path]],
) -> pd.DataFrame:
    """Return metrics.predictions() of all runs, with probabilities in float64.

    Args:
        runs: see of_all().
    """
    frame = of_all(runs, metrics.predictions)
    if "probabilities" in frame:  # a Parquet column has one type, but estimators differ in theirs
        given = frame["probabilities"]
        frame["probabilities"] = given.map(lambda row: np.asarray(row, float), na_action="ignore")
    return frame


def _samples(run: dict[str, Any], folder: Path) -> pd.DataFrame:
    """Return which samples a run was scored on."""
    file = io.BytesIO(run_files.checked(folder, run, run_files.PREDICTIONS))
    return pd.read_parquet(file, columns=["sample"])


def write_predictions(
    file: str | Path,
    runs: Sequence[tuple[dict[str, Any], Path]],
    datasets: dict[str, storage.Dataset],
) -> None:
    """Write the predictions of all runs, one run after the other: masks of all fill the memory.

    Args:
        runs: see of_all().
        datasets: see with_groups().
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(run: dict[str, Any], folder: Path) -> pa.Table:
        frame = with_groups(predictions_of_all([(run, folder)]), datasets)
        return pa.Table.from_pandas(frame, preserve_index=False)

    # Columns that only some runs have, such as probabilities, are empty in the others; so is a run
    # that diverged.
    schema = pa.unify_schemas([table(*pair).schema.remove_metadata() for pair in runs])
    with pq.ParquetWriter(file, schema) as writer:
        for pair in runs:
            found = table(*pair)
            columns = [
                found[name].cast(kind) if name in found.column_names else pa.nulls(len(found), kind)
                for name, kind in zip(schema.names, schema.types, strict=True)
            ]
            rows = max(1, metrics.PART * len(found) // max(1, found.nbytes))
            writer.write_table(pa.table(columns, schema=schema), row_group_size=rows)


def with_groups(predictions: pd.DataFrame, datasets: dict[str, storage.Dataset]) -> pd.DataFrame:
    """Return predictions with the column `group`, if a dataset has groups that folds keep together.

    Args:
        predictions: see predictions_of_all().
        datasets: label -> Dataset.
    """
    groups = np.full(len(predictions), None, dtype=object)
    for label, dataset in datasets.items():
        if (group_of := dataset.group_of) is not None:
            rows = ((predictions["dataset"] == label) & (predictions["split"] != "test")).to_numpy()
            groups[rows] = group_of[predictions["sample"].to_numpy()[rows]]
    return predictions.assign(group=groups) if groups.any() else predictions


def _test_samples(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return a digest of the samples that each run was scored on, equal for equal test folds."""
    samples = predictions.groupby(tidy.RUN, sort=False)["sample"]
    rows = [
        dict(zip(tidy.RUN, run, strict=True)) | {comparison.TEST_SAMPLES: _digest(of_run)}
        for run, of_run in samples
    ]
    return pd.DataFrame(rows, columns=[*tidy.RUN, comparison.TEST_SAMPLES])


def _digest(samples: pd.Series) -> str:
    return sha256(np.sort(samples.to_numpy()).tobytes()).hexdigest()[:12]


def utilisation(run: dict[str, Any]) -> pd.DataFrame:
    """Return the CPU seconds of a run over time, in all sessions so far, from its metrics."""
    rows, before = [], 0.0
    for number, session in enumerate(run["sessions"], start=1):
        rows += [(number, time, before + cpu) for time, cpu in session["trace"]]
        before += session["cpu_seconds"]
    return pd.DataFrame(rows, columns=["session", "time", "cpu_seconds"])
