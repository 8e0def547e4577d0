"""Plot how busy the cores were: one run after the other, and packed."""

from allcores.analysis import style, tidy
from utilisation_figure import draw


def packing_figure(single, packed):
    """Two panels with the same axis of time.

    Args:
        single, packed: (runs, utilisation) of the two studies.
    """
    figure, axes = style.panels(2, width=8.5, height=2.4, columns=1, sharex=True)
    minutes = []
    for panel, (runs, utilisation), title in zip(
        axes, (single, packed), ("one after the other", "packed"), strict=True
    ):
        minutes.append(draw(panel, runs, utilisation))
        ways = " / ".join(dict.fromkeys(style.way(row) for _, row in runs.iterrows()))
        panel.set_title(f"{title}: {ways}", loc="left")
    axes[0].set_xlim(0, max(minutes))
    axes[1].set_xlabel("time since the first run began (min)")
    style.legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    inputs = snakemake.input
    style.save(
        packing_figure(
            (tidy.read(inputs.single), tidy.read(inputs.single_utilisation)),
            (tidy.read(inputs.packed), tidy.read(inputs.packed_utilisation)),
        ),
        snakemake.output,
    )
