"""What figures show of their tables."""

import pandas as pd
from test_tables import FACTS, RUNS, made
from test_verdict import read_back, speeds

from allcores.analysis import products


def test_a_figure_shows_the_speedups_of_all_its_panels():
    table = read_back(speeds([*RUNS, *(made("ddp", 4, fold, 0.8, 3.0) for fold in (0, 1))]))
    faster = table.assign(model="wide", speedup=9 * table["speedup"])
    table = pd.concat([table, faster], ignore_index=True)
    figure = products.load("speedup_figure").figure(table, FACTS)
    assert all(panel.get_ylim()[1] > table["speedup"].max() for panel in figure.axes)
