"""Tables as people have them: an index written along, codes, seconds since 1970."""

import warnings

import numpy as np
import pandas as pd
import pytest
from conftest import vary
from test_any_data import PEOPLE, PLAIN, saved

from allcores.data import storage
from allcores.datasets import npz, table
from allcores.serving import samples
from allcores.serving.predictor import Predictor
from allcores.study.run import Choice


def test_an_index_that_was_written_along_is_no_feature(tmp_path):
    PEOPLE.to_csv(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match=r'an index that was written.*`drop: ."Unnamed: 0".`'):
        table.load(None, path=tmp_path / "mine.csv", target="ill")
    drop = ["Unnamed: 0", "number"]
    assert table.load(None, path=tmp_path / "mine.csv", target="ill", drop=drop).train == 6


def test_two_columns_of_one_name_are_told(tmp_path):
    (tmp_path / "mine.csv").write_text("a,b,a\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match="has the column a twice"):
        table.load(None, path=tmp_path / "mine.csv", target="b", task="regression")


def test_a_long_column_is_read_as_a_whole(tmp_path):
    """pandas would find numbers in its first part and texts in the last."""
    count = 300_000
    frame = pd.DataFrame({"c": ["1", "2"] * count, "y": ["a", "b"] * count})
    frame.loc[2 * count - 1, "c"] = "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = table.columns_of("it", table.read(saved(tmp_path, frame))[["c"]])
    assert [column["category"] for column in found] == ["1", "2", "x"]


@pytest.mark.parametrize(
    ("values", "is_blurred"),
    [
        (1_700_000_000 + np.arange(60), True),
        (1_700_000_000 + np.arange(60) * 86_400, False),
        (np.full(60, 0.1) + np.arange(60) * 1e-17, False),
        (1000 + np.arange(60) / 64, False),
        (np.zeros(60), False),
    ],
)
def test_what_float32_cannot_tell_apart_is_blurred(values, is_blurred):
    assert storage.blurred(values) == is_blurred


def test_seconds_of_an_hour_are_told_from_those_of_a_year(tmp_path):
    told = "the column at holds numbers from 1700000000 to 1700000005, which float32 can hardly"
    options = {"target": "ill", "drop": ["number"]}
    for second, message in ((1, told), (1_000_000, None)):
        path = saved(tmp_path, PEOPLE.assign(at=1_700_000_000 + second * np.arange(6)))
        if message is None:
            assert table.load(None, path=path, **options).train == 6
            continue
        with pytest.raises(ValueError, match=message):
            table.load(None, path=path, **options)


def test_arrays_are_judged_as_a_whole(tmp_path, monkeypatch):
    """Rows that follow one another may be close, and still all of them far apart."""
    monkeypatch.setattr(npz, "CHUNK", 4)
    at = 1_700_000_000 + 10_000.0 * np.arange(50)
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=np.stack([at, np.arange(50)], axis=1), targets=at)
    assert len(list(npz.load(None, path=path, task="regression").chunks)) == 25


def test_codes_are_read_as_they_were_written(laboratory, tmp_path):
    """Also where no other row says that they are texts."""
    codes = pd.concat([PEOPLE.assign(town=["02", "10", "x", "02", "10", "x"])] * 6)
    coded = {"path": saved(tmp_path, codes, "codes.csv"), "target": "ill", "drop": ["number"]}
    run = vary(dataset=Choice("codes", "table", coded), **PLAIN, **{"folds": 2, "fold": 0})
    laboratory.conduct(run, "coded")
    predictor = Predictor(laboratory.folder / "coded")
    all_rows = samples.read(saved(tmp_path, codes[:6], "six.csv"), predictor).inputs
    without_x = codes[:6][codes[:6]["town"] != "x"]
    some_rows = samples.read(saved(tmp_path, without_x, "four.csv"), predictor).inputs
    assert np.array_equal(some_rows, all_rows[[0, 1, 3, 4]])
