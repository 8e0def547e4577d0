"""The findings of a study, in sentences made from its tables."""

from allcores.analysis import products
from allcores.analysis.words import bottom_line
from allcores.analysis.words.wording import comma_separated, count

# Columns of runs.csv that make timings incomparable where they differ -> in words.
MIXED = {
    "machine_host": "the machine",
    "machine_processor": "the processor",
    "machine_torch": "the version of torch",
    "exclusive": "whether they were alone on the machine",
    "pinned": "whether their processes were pinned to cores",
}


def of_machine(runs):
    """Sentences on the machines of the runs, and on conditions that differ between runs."""
    hosts = list(dict.fromkeys(runs["machine_host"]))
    first = runs.iloc[0]
    where = (
        f"On {hosts[0]}"
        if len(hosts) == 1
        else f"On {len(hosts)} machines, {comma_separated(hosts)},"
    )
    yield (
        f"{where} ({first['machine_cores_allowed']} cores, {first['machine_processor']}, "
        f"torch {first['machine_torch']}), from {count(len(runs), 'run')}."
    )
    for column, condition in MIXED.items():
        counts = runs[column].value_counts(sort=False)
        if len(counts) > 1:
            words = {True: "yes", False: "no"}
            values = comma_separated(f"{words.get(v, v)} ({n})" for v, n in counts.items())
            yield f"The runs differ in {condition}, which affects timings: {values}."
    if runs["precision"].nunique() > 1:
        pairs = runs[["model", "precision"]].drop_duplicates().groupby("precision", sort=False)
        listed = "; ".join(f"{name}: {comma_separated(rows['model'])}" for name, rows in pairs)
        yield (
            f"The models were trained in different precisions ({listed}). bf16 rounds, which may "
            "cost accuracy; `recipe: fixed` trains all in fp32."
        )
    unknown = runs[runs["held_out_unknown"] > 0]
    if len(unknown):
        yield (
            f"In {count(len(unknown), 'run')}, held-out samples have a category that no training "
            f"sample has, {unknown['held_out_unknown'].max():,.0f} at most; it counted as none."
        )
    resumed = (runs["sessions"].str.count(" ") > 0).sum()
    if resumed:
        yield f"{count(resumed, 'run')} had been interrupted and resumed; their times are sums."
    stopped = runs.loc[runs["stopped_seconds"] > 0, "stopped_seconds"]
    if len(stopped):
        yield (
            f"{count(len(stopped), 'run')} stood still for up to {stopped.max():.0f} s, as by "
            "Ctrl-Z or a suspended machine, and went on; whole times contain that, speeds do not."
        )


def of_missing(missing, runs):
    """Sentences on the runs that failed and on those that diverged."""
    if len(missing):
        yield (
            f"INCOMPLETE: {count(len(missing), 'run')} of {len(missing) + len(runs)} failed and "
            f"{'is' if len(missing) == 1 else 'are'} missing here, for instance "
            f"{missing['run'].iloc[0]}; {_why_missing(missing.iloc[0])}."
        )
    diverged = runs[runs["diverged"].notna()]
    if len(diverged):
        groups = diverged.groupby(["model", "schedule", "strategy"], sort=False)["diverged"]
        listed = "; ".join(
            f"{model} ({schedule}) with {strategy}: {count(len(places), 'run')}, the first in "
            f"{places.iloc[0]}"
            for (model, schedule, strategy), places in groups
        )
        yield f"DIVERGED (the loss became infinite or NaN) and left out below: {listed}."


def _why_missing(row):
    if isinstance(row["log"], str):
        return f"its log says why: {row['log']}"
    return "it was not started, because something that it needs had failed"


def lead(frames, facts):
    """What is missing or diverged, and the bottom line."""
    missing = of_missing(frames["missing"], frames["runs"])
    return [*missing, *bottom_line.sentences(frames, facts)]


def sentences(frames, names, facts, notes=()):
    """The sentences, those of lead() first.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        names: of the products that have sentences, in the order of these.
        facts: products.Facts.
        notes: on the data.
    """
    lines = [
        *lead(frames, facts),
        *(f"Please check: {note}." for note in notes),
        *of_machine(frames["runs"]),
    ]
    for name in names:
        inputs = frames | {"facts": facts}
        arguments = {key: inputs[key] for key in products.by_name()[name].inputs_of_sentences}
        lines += products.load(name).sentences(**arguments)
    return lines


def as_rst(study, lines):
    """For the report's first page."""
    # A backslash before characters that reStructuredText would take for markup.
    plain = [sentence.translate({ord(c): f"\\{c}" for c in "\\*`|_"}) for sentence in lines]
    return f"**{study}**\n\n" + "\n".join(f"* {sentence}" for sentence in plain) + "\n"
