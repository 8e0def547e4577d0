"""What a study found, in sentences made from its tables."""

from html import escape
from pathlib import Path

from allcores.analysis import bottom_line, sentences, tidy, wording

# In the order of the report: table -> what makes sentences of it.
ABOUT = {
    "packing_table": sentences.of_packing,
    "speed_table": sentences.of_speed,
    "elapsed_table": sentences.of_elapsed,
    "target_table": sentences.of_target,
    "size_table": sentences.of_sizes,
    "comparison_table": sentences.of_comparison,
    "staleness": sentences.of_staleness,
}


def verdict(found, facts):
    """The sentences, the bottom line first.

    Args:
        found: name of a table -> the table.
        facts: wording.Facts.
    """
    said = [
        *bottom_line.sentences(found, facts),
        *sentences.of_missing(found["missing"], found["runs"]),
        *sentences.of_machine(found["runs"]),
    ]
    for name, make in ABOUT.items():
        if name in found:
            said += make(found[name], facts)
    return said


def as_html(study, said):
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in said)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{tidy.STYLE}'
        f"<h2>{escape(study)}</h2><ul>\n{items}</ul></html>"
    )


def as_rst(study, said):
    """For the report's first page."""
    # A backslash before what reStructuredText would take for markup.
    plain = [sentence.translate({ord(c): f"\\{c}" for c in "\\*`|_"}) for sentence in said]
    return f"**{study}**\n\n" + "\n".join(f"* {sentence}" for sentence in plain) + "\n"


if __name__ == "__main__":
    found = {name: tidy.read(path) for name, path in snakemake.input.items()}
    facts = wording.Facts(**snakemake.params.facts)
    said = verdict(found, facts)
    print(*said, sep="\n")
    Path(snakemake.output.html).write_text(as_html(snakemake.wildcards.study, said))
    Path(snakemake.output.rst).write_text(as_rst(snakemake.wildcards.study, said))
