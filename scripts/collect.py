"""Gather a study's results into tidy CSVs: runs, epochs, staleness, classes, confusion, CPU use."""

import json

import pandas as pd

from allcores import results, tables


def read(path, settings):
    """The metrics at path.

    Raises:
        ValueError: they were edited, or are of other settings than those asked for. Snakemake
            trains anew when settings change; this catches what it cannot see, such as a config
            that was changed after `.snakemake` was deleted.
    """
    metrics = results.read_metrics(path)
    wanted = json.loads(settings)
    different = [key for key in wanted if metrics["settings"].get(key) != wanted[key]]
    if different:
        raise ValueError(
            f"{path} was trained with other settings than the config's: {', '.join(different)}. "
            "Delete it to train again"
        )
    return metrics


def traces(all_metrics, paths):
    """CPU seconds over time of all runs, one below the other."""
    return pd.concat(
        pd.DataFrame(tables.identify(metrics), index=[0]).merge(pd.read_csv(path), how="cross")
        for metrics, path in zip(all_metrics, paths, strict=True)
    )


if __name__ == "__main__":
    all_metrics = [
        read(path, settings)
        for path, settings in zip(snakemake.input.metrics, snakemake.params.settings, strict=True)
    ]
    for name in ("runs", "epochs", "staleness", "classes", "confusion"):
        getattr(tables, name)(all_metrics).to_csv(snakemake.output[name], index=False)
    traces(all_metrics, snakemake.input.traces).to_csv(snakemake.output.utilisation, index=False)
