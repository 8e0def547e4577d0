"""Gather a study's results into tidy CSVs: runs, epochs, staleness, classes, confusion, CPU use."""

import pandas as pd

from allcores.analysis import collect, tidy
from allcores.study.run import Run

TIDY = ("runs", "epochs", "staleness", "classes", "confusion")

if __name__ == "__main__":
    runs = [Run.from_json(settings) for settings in snakemake.params.settings]
    asked = snakemake.params.asked
    all_metrics, traces, missing = [], [], list(snakemake.params.missing)
    for run, path, trace in zip(runs, snakemake.input.metrics, snakemake.input.traces, strict=True):
        conditions = {name: run.path in paths for name, paths in asked.items()}
        try:
            all_metrics.append(collect.read(path, run, snakemake.params.data, **conditions))
            traces.append(trace)
        except ValueError as error:
            if not snakemake.params.missing:
                raise
            print(error)
            missing.append(run.path)
    for name in TIDY:
        getattr(tidy, name)(all_metrics).to_csv(snakemake.output[name], index=False)
    collect.utilisation(all_metrics, traces).to_csv(snakemake.output.utilisation, index=False)
    pd.DataFrame({"run": missing}).to_csv(snakemake.output.missing, index=False)
