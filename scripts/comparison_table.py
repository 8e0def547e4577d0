"""Does accuracy differ from the baseline's, and by how much at most?"""

from pathlib import Path

from allcores.analysis import comparison, tidy

SAME = ["dataset", "model", "schedule", "train_size"]


def comparison_table(runs, baseline):
    """One row per cell that is not the baseline: its accuracy minus the baseline's.

    Baseline is that strategy with its fewest cores, for the same dataset, model, schedule and
    training-set size; runs are paired by fold and seed.
    """
    ours = runs[runs["strategy"] == baseline]
    fewest = ours["cores"] == ours.groupby(SAME)["cores"].transform("min")
    base = ours[fewest].drop_duplicates([*SAME, *tidy.REPEAT])
    others = runs.drop(index=base.index)
    return comparison.compare(others, base, SAME)


if __name__ == "__main__":
    table = comparison_table(tidy.read(snakemake.input.runs), snakemake.params.baseline)
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("workers", "threads", "pairs"), str)
    formats |= dict.fromkeys(("difference", "low", "high"), "{:+.2%}".format)
    formats |= {"at_most": "{:.2%}".format}
    formats |= dict.fromkeys(("p", "p_corrected"), "{:.3f}".format)
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
