"""Files as they come, one per row, each with the sentence that a person gets."""

import io
import json
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from margindist.datasets import DataError, read_file

ROWS = [("rose", 1.5, 3), ("lily", 2.5, 4), ("rose", 3.25, 5), ("lily", 0.5, 6)] * 6
PLAIN = "width,count,kind\n" + "".join(f"{width},{count},{kind}\n" for kind, width, count in ROWS)


def table(column, values, *, sep=",", top=""):
    """A table with a column of these values, which are quoted, beside another one and the target."""
    lines = [
        f'"{values[k % len(values)]}"{sep}{count}{sep}{kind}' for k, (kind, _, count) in enumerate(ROWS)
    ]  # fmt: skip
    return top + sep.join([column, "count", "kind"]) + "\n" + "\n".join(lines) + "\n"


def excel():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return packed.getvalue()


def zipped():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t.csv", PLAIN)
    return packed.getvalue()


# name, content, the sentence, and what the first column then is (None: anything).
READ = [
    ("UTF-16", "t.csv", PLAIN.replace("kind", "Größe").encode("utf-16"), "The text was read as UTF-16.", [1.5, 2.5]),
    ("UTF-16 without a mark", "t.csv", PLAIN.encode("utf-16-le"), "The text was read as UTF-16-LE.", [1.5, 2.5]),
    (
        "cp1252", "t.csv", PLAIN.replace("rose", "glaïeul").encode("cp1252"),
        "The text is not UTF-8 and was read as cp1252 (Western European Windows): line 2 has 'glaïeul'. --encoding "
        "names another.", [1.5, 2.5],
    ),
    ("a comment", "t.csv", "# exported on Monday\n" + PLAIN, "Left out 1 comment line at the top.", [1.5, 2.5]),
    ("a byte order mark", "t.csv", "\ufeff" + PLAIN, "", [1.5, 2.5]),
    ("mixed line ends", "t.csv", PLAIN.replace("\n", "\r\n", 9), "", [1.5, 2.5]),
    ("line ends in quotes", "t.csv", PLAIN.replace("rose", '"a\nrose"'), "", [1.5, 2.5]),
    ("decimal commas", "t.csv", PLAIN.replace(",", ";").replace(".", ","),
     "Commas within numbers were taken as decimal points.", [1.5, 2.5]),
    ("names twice", "t.csv", PLAIN.replace("count", "width"), "Columns of the same name were numbered.", [1.5, 2.5]),
    ("a delimiter behind each line", "t.csv", PLAIN.replace("\n", ",\n"), "", [1.5, 2.5]),
    ("a column without a name", "t.csv", PLAIN.replace("width", ""),
     "Without a name, and called by their place: x0.", [1.5, 2.5]),
    ("an index of pandas", "t.csv", pd.read_csv(io.StringIO(PLAIN)).to_csv(),
     "Left out 1 column with whole numbers that only number the rows: 'x0'.",
     [1.5, 2.5]),
    (
        "many columns like classes", "t.csv",
        "f0,f1,f2,f3,f4,f5,f6,f7,f8,kind\n" + "".join(f"{k % 2}," * 9 + f"{'uv'[k % 2]}\n" for k in range(30)),
        "The last column, 'kind', was taken as the target. --target chooses another; these look like classes too: "
        "'f0', 'f1', 'f2', 'f3', 'f4' and 4 more.", None,
    ),
    ("blank lines", "t.csv", PLAIN.replace("\n", "\n\n"), "", [1.5, 2.5]),
    ("Excel's hint", "t.csv", "sep=,\n" + PLAIN, "Left out 1 comment line at the top.", [1.5, 2.5]),
    (
        "thousands", "t.csv", table("price", ["1,234.50", "999", "12,000,000", "3.5"]),
        "The column 'price' was read as numbers (',' between thousands): '12,000,000' is 12000000.",
        [1234.5, 999.0, 12e6, 3.5],
    ),
    (
        "thousands the other way", "t.csv", table("price", ["1.234,50", "999", "-12.000,5", "3,5"], sep=";"),
        "The column 'price' was read as numbers ('.' between thousands, decimal commas): '-12.000,5' is "
        "-12000.5.", [1234.5, 999.0, -12000.5, 3.5],
    ),
    (
        "blanks between thousands", "t.csv", table("price", ["1 234", "999", "12 000 000", "5"]),
        "The column 'price' was read as numbers (blanks between thousands): '12 000 000' is 12000000.",
        [1234.0, 999.0, 12e6, 5.0],
    ),
    (
        "per cent", "t.csv", table("share", ["12%", "3.5%", "-1%", "100%"]),
        "The column 'share' was read as numbers (% left out): '100%' is 100.", [12.0, 3.5, -1.0, 100.0],
    ),
    (
        "currency", "t.csv", table("cost", ["$1,200", "$5", "-$3.50", "n/a"]),
        "The column 'cost' was read as numbers ($ left out, ',' between thousands): '$1,200' is 1200.",
        None,
    ),
    ("euro", "t.csv", table("cost", ["5 €", "7,50 €"], sep=";"),
     "The column 'cost' was read as numbers (€ left out, decimal commas): '7,50 €' is 7.5.", [5.0, 7.5]),
    ("n/a", "t.csv", table("age", ["31", "n/a", "40", "N/A"]), "", [31.0, np.nan, 40.0, np.nan]),
    ("dashes", "t.csv", table("age", ["31", "-", "40", "--"]), "", [31.0, np.nan, 40.0, np.nan]),
    (
        "dates", "t.csv", table("sold", ["2024-02-29", "2023-12-31", "", "2024-01-01"]),
        "The column 'sold' holds dates ('2023-12-31') and was read as numbers: 'sold (days since 1970)', 'sold "
        "(year)', 'sold (month)', 'sold (day)', 'sold (weekday)'.", [19782.0, 19722.0, np.nan, 19723.0],
    ),
    (
        "a row per day", "t.csv",
        "sold,count,kind\n" + "".join(f"2024-01-{k + 1:02},{row[2]},{row[0]}\n" for k, row in enumerate(ROWS)),
        "The column 'sold' holds dates ('2024-01-01') and was read as numbers: 'sold (days since 1970)', 'sold "
        "(year)', 'sold (month)', 'sold (day)', 'sold (weekday)'.", [19723.0, 19724.0],
    ),
    (
        "dates and times", "t.csv", table("sold", ["31.12.2023 18:00", "01.01.2024 06:30"]),
        "The column 'sold' holds dates ('01.01.2024 06:30'), the day first, and was read as numbers: 'sold (days since "
        "1970)', 'sold (year)', 'sold (month)', 'sold (day)', 'sold (weekday)', 'sold (hour)'.",
        [19722.75, 19723.27083333],
    ),
    (
        "American dates", "t.csv", table("sold", ["12/31/2023", "01/02/2024"]),
        "The column 'sold' holds dates ('01/02/2024'), the month first, and was read as numbers: 'sold (days since "
        "1970)', 'sold (year)', 'sold (month)', 'sold (day)', 'sold (weekday)'.", [19722.0, 19724.0],
    ),
    (
        "spellings of labels", "t.csv", PLAIN.replace("2.5,4,lily", "2.5,4,Lily"),
        "Labels that differ only in upper and lower case or blanks count as different classes: 'Lily' and 'lily'.",
        [1.5, 2.5],
    ),
    (
        "the target in the middle", "t.csv",
        "a,kind,b\n" + "".join(f"{k * 0.7},{'uv'[k % 2]},{k * 1.3}\n" for k in range(30)),
        "The column 'kind' was taken as the target: no other looks like classes.", None,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "sentence", "first"), [row[1:] for row in READ], ids=[r[0] for r in READ])
def test_read_with_a_sentence(tmp_path, name, content, sentence, first):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = read_file(path)
    assert not sentence or sentence in data.notes, data.notes
    if first is not None:
        assert data.target_name in ("kind", "Größe")
        X = np.asarray(data.X, dtype=float)
        np.testing.assert_allclose(X[: len(first), 0], first)
    if name == "n/a":
        assert data.X.shape == (24, 2)


@pytest.mark.parametrize(
    "values",
    [
        ["1.5", "2,5"],  # a point or a thousand?
        ["1.500", "2,5"],
        ["1.234.567", "2.345.678"],  # versions, perhaps
        ["$5", "5"],
        ["$5", "€6"],
        ["5%", "5"],
        ["03/04/2024", "05/06/2024"],  # March or April?
        ["2024-02-30", "2024-01-01"],
        ["12,34", "1,234,567"],
        ["555-1234", "555-9876"],
    ],
    ids=str,
)
def test_what_may_mean_two_things_stays_text(tmp_path, values):
    path = tmp_path / "t.csv"
    path.write_text(table("odd", values, sep=";"), encoding="utf-8")
    data = read_file(path)
    assert set(data.X["odd"]) == set(values)


def unread(name, what, call):
    do = f"save it as CSV, or in Python: pandas.{call}({name!r}).to_csv('data.csv', index=False)."
    return f"{name}: {what} not read; {do}"


REFUSED = [
    ("a workbook", "t.xlsx", excel(), unread("t.xlsx", "spreadsheets are", "read_excel")),
    ("a workbook without its ending", "t", excel(), unread("t", "spreadsheets are", "read_excel")),
    ("JSON", "t.json", json.dumps([{"a": 1}]), unread("t.json", "JSON is", "read_json")),
    ("an old Feather file", "t.feather", b"FEA1" + bytes(40),
     unread("t.feather", "Feather files of version 1 are", "read_feather")),
    ("a ZIP archive", "t.zip", zipped(), "t.zip: ZIP archives are not read; unpack it and name the file within."),
    ("one by another name", "t.csv", zipped(), "t.csv: ZIP archives are not read; unpack it and name the file within."),
    (
        "a web page", "t.csv", "\n<!DOCTYPE html><html><body>Not found</body></html>\n",
        "t.csv: expected data, got a web page; was the download refused?",
    ),
    (
        "a title", "t.csv", "Flowers of 2024\n" + PLAIN,
        "t.csv, line 1: the first line has 1 field, those below have 3; give every column a name, and remove a title, "
        "or begin it with #.",
    ),
    (
        "row names without a name", "t.csv", PLAIN.replace("width,", "", 1),
        "t.csv, line 1: the first line has 2 fields, those below have 3; give every column a name, and remove a title, "
        "or begin it with #.",
    ),
    (
        "lines of an old Mac", "t.csv", PLAIN.replace("\n", "\r"),
        "t.csv, line 1: expected lines that end in LF or CR LF, got a carriage return alone; a text editor can "
        "save it so.",
    ),
    ("one class", "t.csv", PLAIN.replace("lily", "rose").replace("kind", "class"),
     "t.csv: expected at least two classes in the target column 'class', got only rose."),
    (
        "a target for regression", "t.csv", "a,y\n" + "".join(f"{k},{k * 1.1}\n" for k in range(60)),
        "t.csv: the target column 'y' looks continuous (60 different values in 60 rows), but classification needs "
        "classes; name another target column, or make classes of it first.",
    ),
    (
        "several candidates", "t.csv", "a,b,c\n" + "".join(f"{k % 2},{k % 3},{k * 1.7}\n" for k in range(40)),
        "t.csv: several columns look like classes, and the last one does not: 'a', 'b'; name the target with --target "
        "(in Python: target=).",
    ),
    (
        "damaged UTF-8", "t.csv", PLAIN.replace("lily", "Flügel").encode() + b"1,2,\xff\n",
        "t.csv, line 26: byte 0xff is not UTF-8; name the file's encoding (--encoding), or save it as UTF-8 text.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "sentence"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_with_what_to_do(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as refused:
        read_file(path)
    assert str(refused.value) == sentence


def test_encodings_by_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(PLAIN.replace("rose", "роза").encode("koi8-r"))
    data = read_file(path, encoding="KOI8-R")
    assert set(data.y) == {"роза", "lily"} and "cp1252" not in " ".join(data.notes)
    with pytest.raises(DataError, match=r"there is no encoding 'cp1253x'; did you mean cp125\d or cp125\d or "):
        read_file(path, encoding="cp1253x")
    with pytest.raises(DataError, match=r"t\.csv: the text is not ascii \(ordinal not in range\(128\), after line 0\)"):
        read_file(path, encoding="ascii")


def test_lines_keep_their_numbers_below_comments_and_in_other_encodings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("# one\n# two\na,kind\n1,u\n2\n")
    with pytest.raises(DataError, match="line 5: expected 2 fields, got 1"):
        read_file(path)
    path.write_bytes("a,kind\r\n1,ü\r\n2\r\n".encode("utf-16"))
    with pytest.raises(DataError, match="line 3: expected 2 fields, got 1"):
        read_file(path)
    path.write_text("#a,kind\n1,u\n2,v\n")  # names, not a comment
    assert read_file(path).feature_names == ("#a",)


@pytest.mark.parametrize(
    ("column", "left_out"),
    [
        (range(100, 130), True),
        (np.random.default_rng(0).permutation(30), True),
        (np.arange(30) * 17, False),
        (np.arange(30) // 2, False),
    ],
    ids=["running", "shuffled", "with gaps", "repeated"],
)
def test_numbers_of_rows_are_recognised(tmp_path, column, left_out):
    path = tmp_path / "t.csv"
    for name in ("size", "patient_id"):
        path.write_text(f"{name},a,kind\n" + "".join(f"{n},{k * k % 7},{k % 2}\n" for k, n in enumerate(column)))
        data = read_file(path, target="kind")
        distinct = len(set(column)) == 30
        assert (name not in data.feature_names) == (left_out or (distinct and name == "patient_id"))


def test_the_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(PLAIN.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    data = read_file("-")
    assert data.name == "stdin" and data.X.shape == (24, 2)


def test_dates_in_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    days = pd.to_datetime(["2024-02-29 12:00", None, "1969-12-31 00:00"] * 8)
    pd.DataFrame({"sold": days, "kind": ["u", "v", "w"] * 8}).to_parquet(path)
    data = read_file(path)
    np.testing.assert_allclose(np.asarray(data.X)[:3, 0], [19782.5, np.nan, -1.0])
    np.testing.assert_allclose(np.asarray(data.X)[:3, 1:5], [[2024, 2, 29, 4], [np.nan] * 4, [1969, 12, 31, 3]])


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("petal", "did you mean 'length_of_petal'?"),
        ("KINDS", "did you mean 'kind'?"),
        ("colour", "its columns are 'f0', 'f1', 'f2', 'f3', 'length_of_petal', 'kind'."),  # none is near
        ("0.5", "its columns are 'f0', 'f1', 'f2', 'f3', 'length_of_petal', 'kind'."),
    ],
)
def test_a_name_that_does_not_exist_gets_the_near_ones_only(tmp_path, target, hint):
    path = tmp_path / "t.csv"
    path.write_text("f0,f1,f2,f3,length_of_petal,kind\n1,2,3,4,5,u\n2,1,4,3,6,v\n")
    with pytest.raises(DataError) as refused:
        read_file(path, target=target)
    assert str(refused.value) == f"t.csv: there is no column {target!r}; {hint}"
