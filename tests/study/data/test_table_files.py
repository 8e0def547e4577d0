"""Tables as people have them: an index written along, codes, seconds since 1970."""

import io
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from conftest import usual
from hypothesis import given
from hypothesis import strategies as st
from test_any_data import PEOPLE, saved

from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.datasets import _table_files, _table_notes, table


def seconds(step):
    """A column of times in seconds since 1970."""
    return {"at": 1_700_000_000 + step * np.arange(30)}


DAYS = pd.date_range("2026-01-01", periods=30)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"target": "sick"}, "has no column .sick.; found .age., .town."),
        ({}, {"drop": ["size"]}, "has no column .size."),
        ({}, {"target": "town", "task": "regression"}, "the column town holds no numbers"),
        ({}, {"drop": ["age", "town", "smokes", "number"]}, "and 0 features"),
        ({}, {"target": ["ill"]}, r"found target .*; expected a column"),
        ({}, {"groups": 1}, "found the column 1; expected a name, in quotes"),
        ({}, {"groups": "town", "time": "age"}, "found groups and time; expected one of them"),
        ({"age": [np.inf] * 30}, {"time": "age"}, "a number is infinite"),
        ({"age": "soon"}, {"time": "age"}, "neither numbers nor dates"),
        (
            {"age": "31.12.2020"},
            {"time": "age"},
            r"\(Time data 31.12.2020 is not ISO8601 format\)$",
        ),
        ({"odd": DAYS.astype(str)}, {}, "has 30 different texts in 30 rows"),
    ],
)
def test_a_table_that_cannot_be_used_is_told(tmp_path, columns, options, message):
    frame = pd.concat([PEOPLE] * 5, ignore_index=True).assign(**columns)
    with pytest.raises(ValueError, match=message):
        table.load(None, **({"path": saved(tmp_path, frame), "target": "ill"} | options))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (DAYS, "holds Timestamp.*expected numbers or categories"),
        (pd.to_timedelta(np.arange(30), unit="h"), "holds Timedelta"),
        ([[1, 2]] * 30, r"expected numbers or categories, or `drop: \[odd\]`"),
    ],
)
def test_values_of_parquet_that_are_no_categories_are_told(tmp_path, values, message):
    frame = pd.DataFrame({"x": range(30), "y": ["a", "b"] * 15, "odd": values})
    with pytest.raises(ValueError, match=message):
        table.load(None, path=saved(tmp_path, frame, "mine.parquet"), target="y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n1,2,3\n4,5,6\n", "has the column a twice"),
        ("a;y\n1,5;2\n", r"columns are separated by ';'; expected commas"),
        ("a\ty\n1,5\t2\n", r"columns are separated by '\\t'; expected commas"),
        ("a|y\n1,5|2\n", r"columns are separated by '\|'; expected commas"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path, text, message):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        _table_files.read(tmp_path / "mine.csv")


def test_what_looks_odd_and_is_none_the_less_read(tmp_path):
    for columns in (seconds(1), {"odd": ["x"] * 29 + ["1"]}):
        frame = pd.concat([PEOPLE] * 5, ignore_index=True).assign(**columns)
        options = {"path": saved(tmp_path, frame), "target": "ill", "drop": ["number"]}
        assert table.load(None, **options).train == 30


def test_a_long_column_is_read_as_a_whole(tmp_path):
    """pandas would find numbers in its first part and texts in the last."""
    count = 300_000
    frame = pd.DataFrame({"c": ["1", "2"] * count, "y": ["a", "b"] * count})
    frame.loc[2 * count - 1, "c"] = "x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns = table.columns_of("it", _table_files.read(saved(tmp_path, frame)).frame[["c"]])
    assert [column["category"] for column in columns] == ["1", "2", "x"]


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        (10**17 + np.arange(6), "float64 cannot hold exactly"),
        (np.arange(6) * 1e300, "squares are too large"),
        (np.arange(6) * 1e-300, "differ too little or not at all"),
        (np.arange(6) * 1e12, None),
        (np.full(6, 3.0), "which differ too little or not at all"),
    ],
)
def test_targets_of_any_data_can_be_squared(tmp_path, targets, why):
    options = {"dtype": np.float32, "train": 6, "task": usual(None)}
    made = storage.Samples((6, 1), [np.zeros((6, 1), np.float32)], targets, **options)
    if why is None:
        storage.write(tmp_path, made)
    else:
        with pytest.raises(ValueError, match=why):
            storage.write(tmp_path, made)


def test_groups_that_are_the_classes_are_said(tmp_path):
    frame = pd.DataFrame(
        {"x": range(8), "y": [0, 1] * 4, "g": ["a", "b"] * 4, "h": [1, 1, 2, 2] * 2}
    )
    options = {"path": saved(tmp_path, frame), "target": "y"}
    notes = [Facts.of(table.load(None, groups=name, **options)).notes for name in "gh"]
    assert "the groups are the classes" in notes[0][0]
    assert notes[1] == ()


@pytest.mark.parametrize(
    "values",
    [pd.Categorical(["a"] * 6), pd.Categorical(["a", "b"] * 3), ["00", "01", "02"] * 2],
)
def test_categories_and_codes_of_parquet_are_texts(tmp_path, values):
    frame = pd.DataFrame({"c": values, "x": range(6), "y": [0, 1] * 3})
    frame.to_parquet(tmp_path / "table.parquet")
    made = table.load(None, path=str(tmp_path / "table.parquet"), target="y")
    assert [column["category"] for column in made.columns] == [*sorted(set(values)), None]
    assert any("They are texts that could be numbers: '00'" in note for note in made.notes) == (
        "00" in values
    )


def test_a_number_that_is_no_truth_is_refused(tmp_path):
    columns = table.columns_of("it", pd.DataFrame({"c": [True, False]}))
    with pytest.raises(ValueError, match="the column c holds '2', in 1 of 2 rows"):
        table.encoded("it", pd.DataFrame({"c": [1, 2]}), columns)
    assert table.encoded("it", pd.DataFrame({"c": [1, 0]}), columns).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("listed", [-999, -999.0, "-999"])
def test_a_number_that_stands_for_a_missing_value_may_be_written_in_any_way(tmp_path, listed):
    (tmp_path / "mine.csv").write_text("a,b\n1.5,-999\n-999.0,4\n-999,-999.00\n")
    found = _table_files.read(tmp_path / "mine.csv", missing_values=[listed]).frame
    assert found["a"].isna().tolist() == [False, True, True]
    assert found["b"].isna().tolist() == [True, False, True]


@pytest.mark.parametrize("header", ["a,b", "a,b,"])
def test_a_comma_at_the_end_of_each_line_names_no_rows(tmp_path, header):
    (tmp_path / "mine.csv").write_text(header + "\n1,2,\n3,4,\n")
    read = _table_files.read(tmp_path / "mine.csv")
    assert read.frame.to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    assert not read.has_row_names


NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
TEXTS = st.text("abXé,\"'", min_size=1, max_size=5)


@given(
    st.lists(st.tuples(NUMBERS, TEXTS, st.booleans()), min_size=2, max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_table_is_encoded_alike_whatever_the_order_of_rows_and_columns(rows, random):
    frame = pd.DataFrame(rows, columns=["number", "text", "truth"])
    columns = table.columns_of("it", frame)
    encoded = table.encoded("it", frame, columns)
    assert (encoded[:, 0] == frame["number"].to_numpy()).all()
    for position, column in enumerate(columns[1:], 1):
        values = frame[column["name"]].astype(str)
        assert (encoded[:, position] == (values == column["category"])).all()
    order = random.sample(range(len(frame)), len(frame))
    shuffled = frame.iloc[order][["truth", "number", "text"]]
    assert np.array_equal(table.encoded("it", shuffled, columns), encoded[order])
    written = pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=False)
    assert np.array_equal(table.encoded("it", written, columns), encoded)


@pytest.mark.parametrize("names", ["xy", "01", "12"])
@pytest.mark.parametrize("header", ["a,b", ",a,b", '"","a","b"'])
def test_names_of_rows_are_told_from_features(tmp_path, names, header):
    """As write.table() and write.csv() of R, and pandas, write them."""
    file = tmp_path / "mine.csv"
    file.write_text(header + "\n{},1.5,2\n{},3,4\n".format(*names))
    read = _table_files.read(file)
    assert read.has_row_names and read.frame["a"].tolist() == [1.5, 3]
    (note,) = table.load(None, path=file, target="b").notes
    assert note == _table_notes.NAMED


def test_the_levels_of_an_index_are_no_features(tmp_path):
    frame = pd.DataFrame(
        {"a": [1.5, 3], "b": [2, 4]}, index=pd.MultiIndex.from_arrays([["p", "q"], ["r", "s"]])
    )
    frame.to_csv(tmp_path / "mine.csv")
    read = _table_files.read(tmp_path / "mine.csv")
    assert read.frame.to_dict("list") == {"a": [1.5, 3], "b": [2, 4]} and read.has_row_names


def test_a_text_column_without_a_value_is_read(tmp_path):
    frame = pd.DataFrame(
        {"a": range(6), "y": [0, 1] * 3, "t": pd.Series([None] * 6, dtype="string")}
    )
    made = table.load(None, path=saved(tmp_path, frame, "x.parquet"), target="y", missing="mean")
    assert made.shape == (6, 1)


def test_parquet_is_read_with_decimals_and_whatever_index(tmp_path):
    frame = pd.DataFrame({"a": range(6), "y": [0, 1] * 3})
    frame["price"] = [Decimal("1.50"), None, *map(Decimal, ("2", "3", "4", "5"))]
    filtered = frame[frame["a"] > 1]
    for index in (filtered, filtered.set_index("a", drop=False)):
        made = table.load(None, path=saved(tmp_path, index, "x.parquet"), target="y")
        assert made.notes == []
        assert next(iter(made.chunks))[:, 1].tolist() == [2, 3, 4, 5]
    read = _table_files.read(saved(tmp_path, frame, "x.parquet")).frame
    assert read["price"].isna().tolist() == [False, True] + [False] * 4


@pytest.mark.parametrize(
    ("name", "values", "note"),
    [
        ("y", ["ill", "Ill", "ill ", "no"] * 5, "differ only in case or blanks: 'Ill' (5), 'ill'"),
        (
            "g",
            ["Charit\u00e9", "charit\u00e9", "Ulm", "Bonn"] * 5,
            "case or blanks: 'Charit\u00e9'",
        ),
        ("x", ["A", "a", "B", "b"] * 5, "'A' (5), 'a' (5), and 1 more such groups"),
        ("x", ["01067", "80331", "1067", "99999"] * 5, "'01067'; 5 now equal a value without"),
        ("y", ["01", "1", "02", "2"] * 5, "10 values begin with 0 as codes do"),
        ("x", ["01", "", "3", "4"] * 5, "5 values begin with 0 as codes do: '01'"),
        ("x", [f"2026-01-{day:02}" for day in range(1, 21)], "20 of 20 values begin with a digit"),
        ("x", ["5 kg", "6 kg", "7 kg", "8 kg"] * 5, "begin with a digit: '5 kg', '6 kg', '7 kg'"),
        ("x", ["00:05:00", "00:06:00"] * 10, "20 values begin with a digit: '00:05:00'"),
        ("x", ["\u22121", "2", "\u22123", "4"] * 5, "values begin with a digit: '\u22121'"),
        ("x", ["#DIV/0!", "2", "3", "4"] * 5, "5 of 20 values are not numbers: '#DIV/0!'"),
        ("x", ["?", *range(19)], "the column x counts as 20 categories, not as a number"),
        ("x", [f"{number} %" for number in range(20)], "the column x counts as 20"),
        ("x", [f'"1,{number:03}"' for number in range(20)], "the column x counts as 20"),
        ("x", [7] * 20, "has a single value, 7: no information"),
        ("x", ["-01", "1", "2", "3"] * 5, "5 values begin with 0 as codes do: '-01'"),
        ("x", ["00", "0", "1", "2"] * 5, "'00'; 5 now equal a value without the zeros"),
        ("x", range(20), "the column x counts the rows; if it is not a feature, set `drop: [x]`"),
        ("x", [2 * n + n % 2 for n in range(20)], "is different in every row"),
        ("x", [0, 0, 0, *(n / 8 for n in range(17))], None),
        ("x", ["x", "y"] * 10, None),
        ("x", ["A1", "B2", "A3", "B3"] * 5, None),
    ],
)
def test_columns_that_may_be_meant_otherwise_are_noted(tmp_path, name, values, note):
    plain = {"y": ["no", "yes"] * 10, "g": list("abcde") * 4, "x": [0.5, 1.5] * 10}
    rows = zip(*(plain | {name: values}).values(), strict=True)
    lines = ["y,g,x", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    file = str(tmp_path / "mine.csv")
    notes = table.load(None, path=file, target="y", groups="g", missing="mean").notes
    if note is None:
        assert notes == []
        return
    (found,) = notes
    assert f"column {name} " in found
    assert note in found


def test_a_note_is_a_line_whatever_the_column_is_called():
    frame = pd.DataFrame({"x\nNOTE: fine": [1, 1]})
    (note,) = _table_notes.of(_table_files.Table(frame), frame, [])
    assert note == "the column x NOTE: fine has a single value, 1: no information"


@pytest.mark.parametrize("dtype", ["float32", "Float32", "float[pyarrow]", "float64"])
def test_codes_of_missing_values_are_found_in_short_floats(tmp_path, dtype):
    column = pd.Series([-99.9, 1.5, 2.5, 1e20] * 5).astype(dtype)
    frame = pd.DataFrame({"x": column, "y": ["a", "b"] * 10})
    file = saved(tmp_path, frame, "mine.parquet")
    read = _table_files.read(file, missing_values=[-99.9, 1e20]).frame
    assert read["x"].isna().sum() == 10


def test_ids_that_a_float_cannot_hold_stay_apart(tmp_path):
    long = "12345678901234567890"
    (tmp_path / "long.csv").write_text(f"x,y\n1,{long}\n2,{long[:-1]}1\n")
    assert _table_files.read(tmp_path / "long.csv", named=["y"]).frame["y"].nunique() == 2


@pytest.mark.parametrize("commas", [",", ",,", ",,,"])
def test_commas_at_the_ends_of_rows_make_no_column(tmp_path, commas):
    (tmp_path / "mine.csv").write_text(f"id,y,a\n1,0,5{commas}\n2,1,6{commas}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = _table_files.read(tmp_path / "mine.csv").frame
    assert frame.to_dict("list") == {"id": [1, 2], "y": [0, 1], "a": [5, 6]}


@pytest.mark.parametrize(
    ("rows", "told"),
    [("1,0,5,,7\n2,1,6,,8\n", "the next row 5"), ("1,0,5,,\n2,1,6,7,8\n", "a later row 5")],
)
def test_rows_that_are_longer_than_the_header_are_refused(tmp_path, rows, told):
    (tmp_path / "mine.csv").write_text(f"id,y,a\n{rows}")
    with pytest.raises(ValueError, match=f"its header has 3 fields, {told}"):
        _table_files.read(tmp_path / "mine.csv")


def test_a_table_of_many_categories_is_encoded_in_parts(tmp_path, monkeypatch):
    frame = pd.DataFrame({"c": [f"c{n % 9}" for n in range(30)], "x": range(30), "y": [0, 1] * 15})
    file = saved(tmp_path, frame, "mine.parquet")
    (whole,) = table.load(None, path=file, target="y").chunks
    monkeypatch.setattr(table, "CHUNK", 70)
    parts = [*table.load(None, path=file, target="y").chunks]
    assert len(parts) == 5 and (np.concatenate(parts) == whole).all()
