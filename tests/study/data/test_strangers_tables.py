"""Tables as strangers write them: words for nothing, codes, row numbers, other separators."""

import gzip

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from allcores_study.data import storage
from allcores_study.datasets import _table_files, npz, table, text

INPUTS = ROOT / "tests" / "inputs"


def loaded(name, **options):
    return table.load(None, path=str(INPUTS / f"{name}.csv"), **options)


def written(folder, content, encoding="utf-8"):
    file = folder / "mine.csv"
    file.write_bytes(content.encode(encoding))
    return str(file)


def test_a_class_may_be_called_none():
    samples = loaded("nullword", target="sev")
    assert samples.names == ["None", "mild", "severe"]
    assert samples.train == len(pd.read_csv(INPUTS / "nullword.csv"))
    (note,) = [note for note in samples.notes if "None" in note]
    assert "the column sev has the word 'None' in " in note
    assert "`missing_values: ['None']`" in note


@pytest.mark.parametrize("word", ["NA", "nan", "null"])
def test_a_word_for_nothing_is_a_word_among_words_and_missing_among_numbers(tmp_path, word):
    rows = "".join(
        f"{n},{(word, 'x')[n % 2]},{(word, n)[n % 2]},{'ab'[n % 2]}\n" for n in range(20)
    )
    file = written(tmp_path, f"id,kind,size,y\n{rows}")
    options = {"path": file, "target": "y", "missing": "mean", "drop": ["id"]}
    samples = table.load(None, **options)
    assert [(c["name"], c["category"]) for c in samples.columns[:2]] == [
        ("kind", word if word < "x" else "x"),
        ("kind", "x"),
    ]
    (inputs,) = samples.chunks
    assert np.isnan(inputs[:, 2]).sum() == 10
    as_missing = table.load(None, **options, missing_values=[word])
    assert [c["category"] for c in as_missing.columns] == ["x", None]


def test_groups_are_read_as_they_are_written(tmp_path):
    file = written(
        tmp_path, "g,x,y\n" + "".join(f"{g},{n},a\nNA,{n},b\n" for n, g in enumerate("1234"))
    )
    samples = table.load(None, path=file, target="y", groups="g")
    assert len(set(samples.groups)) == 5
    storage.write(tmp_path / "data", samples)
    names = storage.open_dataset(tmp_path / "data").group_of
    assert list(names) == ["1", "NA", "2", "NA", "3", "NA", "4", "NA"]


def test_numbered_groups_are_named_by_their_numbers(tmp_path):
    arrays = {"inputs": np.ones((4, 2)), "labels": [0, 1, 0, 1], "groups": [70, 8, 8, 70]}
    np.savez(tmp_path / "mine.npz", **arrays)
    storage.write(tmp_path / "data", npz.load(None, path=str(tmp_path / "mine.npz")))
    names = storage.open_dataset(tmp_path / "data").group_of
    assert list(names) == ["70", "8", "8", "70"]


def test_an_empty_cell_of_a_target_is_missing(tmp_path):
    file = written(tmp_path, "x,y\n1,a\n2,\n3,None\n")
    with pytest.raises(ValueError, match="y in 1, first in row 1; remove"):
        table.load(None, path=file, target="y")


def test_codes_for_missing_numbers_are_noted_and_can_be_said():
    samples = loaded("sent", target="ill")
    (note,) = [note for note in samples.notes if "-999" in note]
    assert "-999 repeats far from all other numbers in age, weight" in note
    with pytest.raises(ValueError, match="age in "):
        loaded("sent", target="ill", missing_values=[-999])
    (inputs,) = loaded("sent", target="ill", missing_values=[-999], missing="mean").chunks
    assert np.isnan(inputs).any() and np.nanmin(inputs) > -999


@pytest.mark.parametrize(("name", "target"), [("irow", "y"), ("rownames", "ill")])
def test_a_row_number_is_noted(name, target):
    assert "the column rownames counts the rows" in "".join(loaded(name, target=target).notes)


HEADERLESS = {
    "numbers": "5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,2.5,virginica\n5.8,2.7,virginica\n",
    "texts": "p,x,s\ne,x,s\np,b,t\ne,x,t\np,x,s\n",
    "twice": "1,1,a\n2,3,b\n4,5,a\n6,7,b\n",
    "blanks": "5.1, 3.5, setosa\n4.9, 3.0, setosa\n6.3, 2.5, virginica\n5.8, 2.7, virginica\n",
}


@pytest.mark.parametrize("name", HEADERLESS)
def test_a_file_without_names_loses_no_row(tmp_path, name):
    file, rows = written(tmp_path, HEADERLESS[name]), HEADERLESS[name].count("\n")
    samples = table.load(None, path=file, target="2", header=False)
    assert samples.train == rows
    assert {column["name"] for column in samples.columns} == {"0", "1"}


def test_a_first_row_that_was_taken_for_names_is_told(tmp_path):
    file = written(tmp_path, "1.5,b,c\n2.5,d,e\n3.5,f,g\n")
    with pytest.raises(ValueError, match=r"no column 'y'; found '1.5', 'b', 'c'; if .*header: f"):
        table.load(None, path=file, target="y")
    with pytest.raises(ValueError, match=r"no column 'y'; found '0', '1', '2'$"):
        table.load(None, path=file, target="y", header=False)


@pytest.mark.parametrize("name", ["ID", "id", "patient_id", "patientId"])
def test_an_id_that_repeats_is_noted(tmp_path, name):
    numbers = [(7 * n) % 18 + 1000 for n in range(20)]
    rows = "".join(f"{number},{'ab'[n % 2]}\n" for n, number in enumerate(numbers))
    notes = table.load(None, path=written(tmp_path, f"{name},y\n{rows}"), target="y").notes
    assert f"{name} has 18 different numbers in 20 rows; if it is not a feature, set" in notes[0]
    for other in ("PAID", "paid", "Madrid", "identity_score"):
        file = written(tmp_path, f"{other},y\n{rows}")
        assert not table.load(None, path=file, target="y").notes


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            ['"5,1"', '"4,9"', '"12,75"', '"6,0"'] * 3,
            "(pandas.read_csv(FILE, decimal=",
        ),
        (
            ['"1,200"', "999", '"12,750"', '"1,234,567.5"'] * 3,
            "pandas.read_csv(FILE, thousands=',') reads numbers like '1,200', '12,750'",
        ),
        (
            ["1", "2", "3", "?"] * 3,
            "3 of 12 values are not numbers: '?'; `missing_values: ['?']` makes",
        ),
    ],
)
def test_texts_that_are_nearly_numbers_are_noted_with_a_remedy(tmp_path, values, told):
    rows = "".join(f"{value},{'ab'[n % 2]}\n" for n, value in enumerate(values))
    notes = table.load(None, path=written(tmp_path, f"x,y\n{rows}"), target="y").notes
    assert told in notes[0]


def test_all_columns_of_no_categories_are_told_at_once(tmp_path):
    rows = "".join(f"name {n},day {n},{n},{'ab'[n % 2]}\n" for n in range(40))
    with pytest.raises(ValueError, match=r"name has 40.*day has 40.*`drop: \[name, day\]`"):
        table.load(None, path=written(tmp_path, f"name,day,x,y\n{rows}"), target="y")


def test_an_infinite_number_can_be_missing(tmp_path):
    file = written(tmp_path, "x,y\n1,a\ninf,b\n3,a\n2,b\n")
    with pytest.raises(ValueError, match=r"holds inf in row 1 \(counted from 0\).*missing_values"):
        table.load(None, path=file, target="y")
    options = {"missing_values": ["inf"], "missing": "mean"}
    (inputs,) = table.load(None, path=file, target="y", **options).chunks
    assert np.isnan(inputs[1, 0])


def test_names_may_be_numbers(tmp_path):
    file = written(tmp_path, "2019,2020,y\n1,2,a\n3,4,b\n")
    assert table.load(None, path=file, target="y").train == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "de2",
            r"separated by ';'; .*: pandas.read_csv\(FILE, sep=';', decimal=','\)",
        ),
        (
            "tab2",
            r"separated by '\\t'; expected commas; convert it: pandas.read_csv\(FILE, sep='\\t'\)",
        ),
        ("spaces", r"has no column 'age'; found 'ill', ' age', ' sex'"),
    ],
)
def test_what_to_write_is_told(name, told):
    with pytest.raises(ValueError, match=told):
        loaded(name, target="age")


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        ("x,z,y\nA,B,1,2,a\nA,C,1,2,b\n", {"target": "y"}, "header has 3 fields, the next row 5"),
        ("5,6;b\n7,25;a\n", {"target": "1", "header": False}, "its columns are separated by ';'"),
    ],
    ids=["longer rows", "decimal commas without names"],
)
def test_what_would_lose_columns_is_told(tmp_path, content, options, told):
    with pytest.raises(ValueError, match=told):
        table.load(None, path=written(tmp_path, content), **options)


def test_features_without_a_value_are_told(tmp_path):
    frame = pd.DataFrame({"x": pd.Series([None, None], dtype=object), "y": ["a", "b"]})
    frame.to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match="no feature has a value in any row"):
        table.load(None, path=str(tmp_path / "mine.parquet"), target="y", missing="mean")


def test_a_file_of_gzip_and_a_name_in_capitals_are_told_from_other_files(tmp_path):
    file = tmp_path / "MINE.CSV"
    file.write_text("x,y\n1,a\n2,b\n")
    assert table.load(None, path=str(file), target="y").train == 2
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(ValueError, match="is compressed by gzip"):
        table.load(None, path=str(file), target="y")


def test_codes_among_numbers_to_predict_and_in_a_column_of_time_are_noted(tmp_path):
    rows = "".join(f"0{n}021990,{n},{n}\n" for n in range(1, 10))
    file = written(tmp_path, f"t,x,cost\n{rows}")
    told = table.load(None, path=file, target="cost", task="regression", time="t").notes
    assert "the column t was read as numbers, but 9 values begin with 0 as codes do" in told[0]
    rows = "".join(f"{n},{-999 if n % 8 == 0 else n}\n" for n in range(40))
    file = written(tmp_path, f"x,cost\n{rows}")
    told = " ".join(table.load(None, path=file, target="cost", task="regression").notes)
    assert "-999 repeats far from all other numbers in cost" in told


def test_bytes_and_large_numbers_are_compared_as_numbers(tmp_path):
    frame = pd.DataFrame({"rating": np.arange(60, dtype=np.uint8) % 10, "y": [0, 1] * 30})
    frame["code"] = np.where(np.arange(60) % 9 == 0, 255, np.arange(60) % 11).astype(np.uint8)
    frame["pressure"] = np.where(np.arange(60) % 9 == 0, 0, 1000 + np.arange(60) % 11)
    frame["who"] = 1_700_000_000_000_000_000 + np.arange(60) * 7
    frame.to_parquet(tmp_path / "mine.parquet")
    notes = table.load(None, path=str(tmp_path / "mine.parquet"), target="y").notes
    (of_who, of_code, of_pressure) = notes  # and none on the ratings
    assert "255 repeats far from all other numbers in code" in of_code
    assert "0 repeats far from all other numbers in pressure" in of_pressure
    assert "the column who is different in every row" in of_who
    file = written(tmp_path, "x,y\n1,a\n1" + 25 * "0" + ",b\n3,a\n")
    (inputs,) = table.load(None, path=file, target="y").chunks
    assert inputs[:, 0].tolist() == [1, 1e25, 3]


def test_an_empty_text_is_missing_in_a_frame_as_in_a_file(tmp_path):
    frame = pd.DataFrame({"c": ["u", "", "v", "u"] * 3, "x": range(12), "y": ["a", "b"] * 6})
    frame.to_parquet(tmp_path / "mine.parquet")
    frame.to_csv(tmp_path / "mine.csv", index=False)
    of_file, of_frame = (
        table.load(None, path=str(tmp_path / f"mine.{kind}"), target="y", missing="mean")
        for kind in ("csv", "parquet")
    )
    assert (of_file.columns, len(of_frame.columns)) == (of_frame.columns, 3)
    new = _table_files.with_texts(_table_files.of_frame(frame))
    assert (table.encoded("new", new, of_frame.columns) == next(iter(of_file.chunks))).all()
    frame["y"] = ["", "b"] * 6
    frame.to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match="missing values: y in 6"):
        table.load(None, path=str(tmp_path / "mine.parquet"), target="y")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_another_encoding_is_told(tmp_path, encoding):
    file = written(tmp_path, "größe,y\n1,a\n2,b\n", encoding)
    with pytest.raises(ValueError, match=rf"is not UTF-8.*encoding='{encoding}'"):
        table.load(None, path=file, target="y")


def test_a_mark_of_utf_8_is_no_part_of_a_name(tmp_path):
    file = written(tmp_path, "y,x\na,1\nb,2\n", "utf-8-sig")
    assert table.load(None, path=file, target="y").train == 2


def test_texts_get_the_notes_of_tables(tmp_path):
    rows = ["hello you,ham", "buy now,spam", "so long,ham ", "cheap,spam"] * 3
    file = written(tmp_path, "\n".join(["message,kind", *rows]) + "\n")
    notes = text.load(None, path=file, text="message", target="kind").notes
    assert any("the column kind has values that differ only in case or blanks" in n for n in notes)


def test_a_long_text_in_the_first_row_is_read(tmp_path):
    file = written(tmp_path, f"message,kind\n{'word ' * 40_000},ham\nhello,spam\n")
    assert text.load(None, path=file, text="message", target="kind").train == 2


def test_faces_as_floats_are_told_how_to_be_images(tmp_path):
    faces, path = np.zeros((10, 25, 25)), tmp_path / "mine.npz"
    np.savez(path, images=faces, labels=[0, 1] * 5)
    with pytest.raises(ValueError, match=r"`images\[:, None\]` turns \(N, H, W\) into that"):
        npz.load(None, path=path)
    np.savez(path, inputs=faces + np.arange(10)[:, None, None], labels=[0, 1] * 5)
    assert "signals of 25 channels; if they are images" in npz.load(None, path=path).notes[0]
