"""What a study found, in sentences made from its tables."""

from allcores.analysis import products
from allcores.analysis.words import bottom_line
from allcores.analysis.words.wording import comma_separated, count

# Columns of runs.csv that make timings incomparable where they differ -> what they are.
MIXED = {
    "machine_host": "the machine",
    "machine_processor": "the processor",
    "machine_torch": "the version of torch",
    "exclusive": "alone on the machine",
    "pinned": "kept to cores of its own",
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
    for column, what in MIXED.items():
        counts = runs[column].value_counts(sort=False)
        if len(counts) > 1:
            found = comma_separated([f"{value} ({number})" for value, number in counts.items()])
            yield f"Not the same for all runs, which timings show: {what}: {found}."
    resumed = (runs["sessions"].str.count(" ") > 0).sum()
    if resumed:
        yield f"{count(resumed, 'run')} had been interrupted and resumed; their times are sums."


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
        ways = diverged.groupby(["model", "schedule", "strategy"], sort=False)["diverged"]
        listed = "; ".join(
            f"{model} ({schedule}) with {strategy}: {count(len(where), 'run')}, the first in "
            f"{where.iloc[0]}"
            for (model, schedule, strategy), where in ways
        )
        yield f"DIVERGED, the loss being no finite number any more, and left out below: {listed}."


def _why_missing(row):
    if isinstance(row["log"], str):
        return f"its log says why: {row['log']}"
    return "it was not begun, as something that it needs failed"


def sentences(found, spoken_of, facts, notes=()):
    """The sentences, the bottom line first.

    Args:
        found: name of a tidy CSV or table -> its frame.
        spoken_of: names of the products that have sentences, in their order.
        facts: products.Facts.
        notes: on the data.
    """
    said = [
        *bottom_line.sentences(found, facts),
        *of_missing(found["missing"], found["runs"]),
        *(f"Is this meant so? {note}." for note in notes),
        *of_machine(found["runs"]),
    ]
    for name in spoken_of:
        frames = {each: found[each] for each in products.known()[name].spoken_from}
        said += products.load(name).sentences(**frames, facts=facts)
    return said


def as_rst(study, said):
    """For the report's first page."""
    # A backslash before what reStructuredText would take for markup.
    plain = [sentence.translate({ord(c): f"\\{c}" for c in "\\*`|_"}) for sentence in said]
    return f"**{study}**\n\n" + "\n".join(f"* {sentence}" for sentence in plain) + "\n"
