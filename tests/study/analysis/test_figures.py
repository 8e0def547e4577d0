"""What figures show of their tables."""

import matplotlib.pyplot as plt
import pandas as pd
from test_tables import FACTS, RUNS, made
from test_verdict import read_back, speeds

from allcores_study.analysis import products, tidy


def test_a_figure_shows_the_speedups_of_all_its_panels():
    table = read_back(speeds([*RUNS, *(made("ddp", 4, fold, 0.8, 3.0) for fold in (0, 1))]))
    faster = table.assign(model="wide", speedup=9 * table["speedup"])
    table = pd.concat([table, faster], ignore_index=True)
    figure = products.load("speedup_figure").figure(table, FACTS)
    assert all(panel.get_ylim()[1] > table["speedup"].max() for panel in figure.axes)


def test_epochs_are_whole_and_two_classes_are_legible():
    epochs = tidy.epochs([made("serial", 1, fold, 0.8, 9.0) for fold in range(2)])
    epochs["accuracy"] = 0.5
    drawn = products.load("learning_curve_figure").figure(epochs, FACTS)
    drawn.draw_without_rendering()
    low, high = drawn.axes[0].get_xlim()
    ticks = [tick for tick in drawn.axes[0].get_xticks() if low <= tick <= high]
    assert ticks == [1, 2]
    plt.close(drawn)
    confusion = tidy.confusion([made("serial", 1, 0, 0.8, 9.0)])
    drawn = products.load("confusion_figure").figure(confusion, FACTS)
    assert min(text.get_fontsize() for text in drawn.axes[0].texts) >= 11
    plt.close(drawn)


def test_numbers_of_a_confusion_matrix_stand_out_from_their_boxes():
    """Also if all are small, or a class has no sample."""
    confusion = tidy.confusion([made("serial", 1, 0, 0.8, 9.0)])
    names = [str(number) for number in range(4)]
    pairs = pd.DataFrame([(a, b) for a in names for b in names], columns=["true", "predicted"])
    same = confusion.iloc[[0]].drop(columns=["true", "predicted", "samples"])
    frame = same.merge(pairs, how="cross").assign(samples=1)
    frame.loc[frame["true"] == "3", "samples"] = 0
    drawn = products.load("confusion_figure").figure(frame, FACTS)
    texts = drawn.axes[0].texts
    assert {text.get_text() for text in texts} == {"25", "0"}
    assert {text.get_color() for text in texts} == {"black"}
    plt.close(drawn)


def test_the_first_and_the_most_accurate_of_many_models_are_drawn():
    confusion = tidy.confusion([made("serial", 1, 0, 0.8, 9.0)])
    many = [confusion.assign(model=f"m{number}") for number in range(5)]
    is_right = many[3]["true"] == many[3]["predicted"]
    many[3]["samples"] += 5 * is_right
    drawn = products.load("confusion_figure").figure(pd.concat(many), FACTS)
    assert [panel.get_title() for panel in drawn.axes if panel.get_title()] == ["m0", "m3"]
    plt.close(drawn)
