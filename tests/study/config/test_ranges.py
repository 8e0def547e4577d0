"""Candidates that are drawn from ranges."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from project import copy
from test_sweeps import expanded

from allcores_study.config import checks, ranges, sweeps

ENTRY = """
mlp: {hidden: [16], batch_size: {log: [8, 128]}, epochs: 1, sample: %s,
      width: {range: [0.5, 2], step: 0.5}, optimizer: {name: adam, lr: {log: [0.0001, 0.1]}}}
"""


def drawn(sample):
    return list(expanded(ENTRY % sample)["swept"].values())


def test_values_lie_where_they_are_allowed():
    candidates = [candidate["values"] for candidate in drawn(64)]
    assert {candidate["width"] for candidate in candidates} == {0.5, 1.0, 1.5, 2.0}
    sizes = [candidate["batch_size"] for candidate in candidates]
    assert all(type(size) is int and 8 <= size <= 128 for size in sizes)
    rates = [candidate["lr"] for candidate in candidates]
    assert all(0.0001 <= rate <= 0.1 for rate in rates)
    assert len({f"{rate:.3e}" for rate in rates}) == 64
    # As many in each decade, give or take one; independent draws would differ by some four.
    decades = np.histogram(np.log10(rates), bins=[-4, -3, -2, -1])[0]
    assert decades.max() - decades.min() <= 2, decades


def test_fewer_candidates_are_the_first_of_more():
    assert drawn(20) == drawn(50)[:20]
    assert drawn(20) != drawn("{count: 20, seed: 1}")


def test_the_order_in_which_keys_are_written_decides_nothing():
    keys = ("batch_size: {log: [8, 128]}", "width: {range: [0.5, 2], step: 0.5}")
    first, second = (
        expanded(
            f"mlp: {{{', '.join(order)}, hidden: [4], epochs: 1, sample: 9, "
            "optimizer: {name: sgd, lr: 1}}"
        )["swept"].values()
        for order in (keys, keys[::-1])
    )
    assert [one["values"] for one in first] == [one["values"] for one in second]


@pytest.mark.parametrize("ends", [(0.1, 0.11), (0.9, 0.99), (0.5, 1.0), (0.98, 1.01)])
def test_all_values_of_a_narrow_range_can_be_drawn(ends):
    narrow = ranges.Range(*ends, is_log=True)
    drawn = [value for (value,) in ranges.draw([swept(narrow)], 2000)]
    assert len({*drawn}) == len(drawn) >= 10 ** (ranges.DIGITS - 2)
    width = ends[1] - ends[0]
    assert min(drawn) - ends[0] < width / 90 and ends[1] - max(drawn) < width / 90


class Axis:
    """In the place of a ranges.Swept, whose axis is read from a config."""

    def __init__(self, axis, path):
        self.axis, self.path = axis, path


def swept(axis, place=0):
    return Axis(axis, (f"key{place}",))


axis = st.one_of(
    st.integers(1, 5).map(lambda count: ranges.Values(list(range(count)))),
    st.builds(ranges.Range, st.integers(1, 9), st.integers(10, 20), is_log=st.booleans()),
    st.builds(ranges.Range, st.integers(-3, 3), st.just(7), st.sampled_from([1, 2, 0.3, 4.0])),
    st.builds(ranges.Range, st.floats(0.1, 0.3), st.floats(0.31, 9e9), is_log=st.booleans()),
)


@given(st.lists(axis, min_size=1, max_size=4), st.integers(1, 40), st.integers(0, 9))
def test_candidates_differ_however_few_there_are(axes, count, seed):
    most = min(count, math.prod(axis.count for axis in axes))
    listed = [swept(axis, place) for place, axis in enumerate(axes)]
    candidates = ranges.draw(listed, {"count": count, "seed": seed})
    assert len({*map(repr, candidates)}) == len(candidates) == most
    for axis, values in zip(axes, zip(*candidates, strict=True), strict=True):
        if isinstance(axis, ranges.Range):
            assert all(axis.least <= value <= axis.most for value in values)
        if not axis.is_continuous and not getattr(axis, "is_log", False):
            assert {*values} <= {*axis.all()}


def test_a_range_of_steps_is_a_list():
    entry = "mlp: {hidden: [8], width: %s, batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 1}}"
    as_range, as_list = (
        expanded(entry % width) for width in ("{range: [0.1, 0.5], step: 0.2}", "[0.1, 0.3, 0.5]")
    )
    assert as_range["models"] == as_list["models"]
    whole = expanded(entry % "{range: [1, 3]}")
    assert [candidate["values"]["width"] for candidate in whole["swept"].values()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("lr", "message"),
    [
        ("{log: [0, 1]}", r"found \[0, 1\]; expected the first to be less .* and above 0"),
        ("{range: [1.0, 0.1]}", r"expected the first to be less than the second$"),
        ("{log: [1e-4, 0.1]}", r"expected \[from, to\], two numbers; YAML .* write 0.0001"),
        ("{range: 3}", r"found 3; expected \[from, to\], two numbers"),
        ("{range: [1.0, 1.0000000000000002]}", "too far apart or too close together"),
        ("{log: [1.0e-300, 1.0e+300]}", "too far apart or too close together"),
        ("{range: [-1.0e+308, 1.0e+308]}", "too far apart or too close together"),
        ("{range: [0, 1], step: 2}", "found step 2; expected a number above 0 up to 1"),
        (f"{{range: [1, 1{'0' * 400}]}}", "which no float can hold"),
        ("{range: [0, 1], step: 5.0e-324}", "too many values"),
        ("{log: [0.1, 1.0], step: 0.1}", r"expected range: \[from, to\], perhaps with a step, or"),
        ("{range: [0, 1], log: [1, 2]}", r"expected range: \[from, to\], perhaps with a step, or"),
        ("{range: [0.0, 1.0]}", "a range without steps; add `sample`, a number of cand"),
    ],
)
def test_what_is_no_range_is_told(lr, message):
    drawn = "" if "without steps" in message else "sample: 3,"
    entry = f"mlp: {{{drawn} batch_size: 8, epochs: 1, optimizer: {{name: sgd, lr: %s}}}}"
    config = {"models": yaml.safe_load(entry % lr), "studies": {}}
    problems = sweeps.problems(config["models"])
    assert len(problems) == 1
    with pytest.raises(ValueError, match=message):
        raise ValueError(problems[0][1])


def test_more_candidates_are_added_to_those_that_are_trained(tmp_path):
    project = copy(tmp_path)
    project.configure(
        lambda config: config.update(
            models=yaml.safe_load(ENTRY % 3),
            studies={"tuned": {"datasets": ["tiny"], "folds": 2, "models": ["mlp"], "select": 2}},
        )
    )
    project.call()
    scored = project.results / "studies" / "tuned" / "candidates.csv"
    first = {*pd.read_csv(scored)["candidate"]}
    page = scored.with_name("report.html").read_text()
    assert "3 candidates, drawn by a scrambled Sobol sequence (seed 0); the best" in page
    project.configure(lambda config: config["models"]["mlp"].update(sample=4))
    output = project.call()
    # Of one more candidate: two inner runs in each of two folds, and of the folds' best perhaps it.
    assert re.search(r"^[4-6] runs trained", output, re.MULTILINE), output
    then = {*pd.read_csv(scored)["candidate"]}
    assert first < then and len(then) == 4, (first, then)


def test_a_step_may_be_as_wide_as_its_range():
    """0.3 - 0.1 is less than 0.2."""
    found = {"range": [0.1, 0.3], "step": 0.2}
    assert ranges.problem(found) is None
    assert ranges.read(found).all() == [0.1, 0.3]


def test_a_wrong_range_brings_no_second_finding():
    entry = "{mlp: {batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: {range: [1.0, 0.1]}}}}"
    study = {"datasets": ["digits"], "folds": 3, "models": ["mlp"], "select": 2}
    study |= {"schedules": ["cosine"], "strategies": ["serial"]}
    config = {"models": yaml.safe_load(entry), "studies": {"first": study}}
    (found,) = checks.findings(config)
    assert "expected the first to be less than the second" in found
