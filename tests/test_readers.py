"""Files of every format: round trips, guesses, refusals, fuzzing, a long file in little memory."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks import fuzz_readers
from margindist.datasets import DataError, read_file
from margindist.datasets.dataset import MISSING_NUMBERS
from margindist.datasets.spelling import is_number, numbers_among
from margindist.datasets.svmlight import read_svmlight

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
FUZZ = settings(max_examples=60, deadline=60_000, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refusal(path, **options):
    """Return the one sentence with which a file is refused."""
    with pytest.raises(DataError) as caught:
        read_file(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    return sentence


def mixed_table(rng, rows=40):
    frame = pd.DataFrame(
        {
            "width": rng.standard_normal(rows),
            "count": rng.integers(0, 9, rows).astype(float),
            "colour": rng.choice(["red", "light blue", "it's, well"], rows),
            "kind": rng.choice(["a", "b", "c"], rows),
        }
    )
    frame.loc[3, "width"] = np.nan
    frame.loc[5, "colour"] = None
    return frame


def to_arff(frame):
    def quoted(value):
        if isinstance(value, float):
            return "?" if np.isnan(value) else repr(value)
        return "?" if value is None or value != value else "'" + value.replace("'", "\\'") + "'"

    lines = ["% a comment", "@RELATION test", ""]
    for name in frame.columns:
        if frame[name].dtype.kind == "f":
            lines.append(f"@attribute {name} numeric")
        else:
            lines.append(f"@attribute '{name}' {{" + ", ".join(map(quoted, sorted(set(frame[name].dropna())))) + "}")
    lines.append("@data")
    lines += [",".join(map(quoted, row)) for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def assert_same_table(data, frame):
    assert data.feature_names == ("width", "count", "colour")
    assert data.target_name == "kind"
    np.testing.assert_array_equal(data.y, frame["kind"].to_numpy(dtype=str))
    np.testing.assert_array_equal(data.X[["width", "count"]].to_numpy(), frame[["width", "count"]].to_numpy())
    assert str(data.X["colour"].dtype) == "category"
    assert data.X["colour"].astype(object).where(data.X["colour"].notna(), None).tolist() == [
        value if isinstance(value, str) else None for value in frame["colour"]
    ]


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("kind", ["comma.csv", "tab.tsv", "semicolon.csv", "bar.txt", "weka.arff", "noname"])
def test_text_tables_round_trip(write, rng, kind, packed):
    frame = mixed_table(rng)
    delimiter = {"comma.csv": ",", "tab.tsv": "\t", "semicolon.csv": ";", "bar.txt": "|", "noname": ","}.get(kind)
    text = frame.to_csv(sep=delimiter, index=False) if delimiter else to_arff(frame)
    content = PACK.get(packed, bytes)(text.encode())
    assert_same_table(read_file(write(kind + packed, content), target="kind"), frame)


def test_parquet_round_trips(tmp_path, rng):
    frame = mixed_table(rng)
    frame.to_parquet(tmp_path / "t.parquet")
    assert_same_table(read_file(tmp_path / "t.parquet"), frame)
    frame.astype({"colour": "category", "kind": "category"}).to_parquet(tmp_path / "c.pq")
    assert_same_table(read_file(tmp_path / "c.pq"), frame)
    dated = frame.assign(day=pd.Timestamp("2020-01-01"), flag=[True, False] * 20, whole=range(0, 80, 2))
    dated.to_parquet(tmp_path / "unnamed")
    data = read_file(tmp_path / "unnamed", target="kind")
    assert data.X["flag"].tolist() == [1.0, 0.0] * 20
    assert "day" not in data.feature_names  # all its parts are the same in every row
    assert any(note.startswith("The column 'day' holds dates and was read as numbers") for note in data.notes)


@pytest.mark.parametrize("name", ["t.feather", "t.arrow", "unnamed"])
def test_feather_round_trips(tmp_path, rng, name):
    frame = mixed_table(rng)
    frame.to_feather(tmp_path / name)
    assert_same_table(read_file(tmp_path / name), frame)
    frame.astype({"colour": "category", "kind": "category"}).to_feather(tmp_path / name)
    assert_same_table(read_file(tmp_path / name), frame)
    assert "unpacks to more than" in refusal(tmp_path / name, max_unpacked=100)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    assert "cannot be read" in refusal(tmp_path / name)


@pytest.mark.parametrize("packed", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_round_trips(tmp_path, rng, packed, zero_based):
    X = sp.random_array((50, 30), density=0.2, rng=rng, format="lil")
    X[0, 0] = 0.5
    X[1, 29] = -1e-300
    X = sp.csr_matrix(X)
    y = rng.integers(-1, 3, 50)
    text = io.BytesIO()
    dump_svmlight_file(X, y, text, zero_based=zero_based, comment="made for a test")
    path = tmp_path / f"data.svm{packed}"
    path.write_bytes(PACK.get(packed, bytes)(text.getvalue()))
    data = read_file(path)
    reference, labels = load_svmlight_file(io.BytesIO(text.getvalue()), zero_based=zero_based)
    assert data.X.dtype == np.float64
    assert (reference != data.X).nnz == 0
    np.testing.assert_array_equal(data.y, labels)
    assert f"start at {0 if zero_based else 1}" in data.notes[0]


@pytest.mark.parametrize("sparse", [True, False])
def test_npz_round_trips(tmp_path, rng, sparse):
    X = rng.integers(0, 2, (20, 6)).astype(np.int8)
    y = np.array(["no", "yes"] * 10)
    parts = sp.csr_matrix(X)
    stored = (
        {"data": parts.data, "indices": parts.indices, "indptr": parts.indptr, "shape": X.shape} if sparse else {"X": X}
    )
    splits = {"train": np.arange(10)[None], "test": np.arange(10, 20)[None]}
    np.savez_compressed(tmp_path / "data.npz", y=y, y3=np.arange(20) % 3, **stored, **splits)
    data = read_file(tmp_path / "data.npz")
    assert data.X.dtype == np.float64
    np.testing.assert_array_equal(data.X.toarray() if sparse else data.X, X)
    np.testing.assert_array_equal(data.y, y)
    np.testing.assert_array_equal(data.splits[0][1], np.arange(10, 20))
    assert read_file(tmp_path / "data.npz", target="y3").y.max() == 2
    assert "no array 'y4'" in refusal(tmp_path / "data.npz", target="y4")


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.16g}"),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.25f}"),
    st.tuples(st.integers(-(10**19), 10**19), st.integers(-40, 40)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
    st.tuples(st.integers(0, 2**53), st.integers(1, 300)).map(lambda pair: f"{(2 * pair[0] + 1) * 2**60}e-{pair[1]}"),
    st.integers(-(10**6), 10**6).map(str),
)


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=30))
@settings(deadline=None)
def test_svmlight_numbers_are_rounded_as_python_rounds_them(numbers):
    numbers = [text for text in numbers if np.isfinite(float(text))] or ["1"]
    line = "1 " + " ".join(f"{k + 1}:{text}" for k, text in enumerate(numbers)) + "\n"
    X, _, _ = read_svmlight(io.BytesIO(line.encode()), "test")
    assert X.data.tolist() == [float(text) for text in numbers]


def test_svmlight_lines_may_cross_blocks(monkeypatch, rng):
    X = sp.random_array((300, 40), density=0.3, rng=rng, format="csr")
    text = io.BytesIO()
    dump_svmlight_file(sp.csr_matrix(X), rng.integers(0, 2, 300), text, zero_based=False)
    expected, labels, _ = read_svmlight(io.BytesIO(text.getvalue()), "test")
    monkeypatch.setattr("margindist.datasets.svmlight._BLOCK_BYTES", 100)
    found, again, _ = read_svmlight(io.BytesIO(text.getvalue()), "test")
    assert (found != expected).nnz == 0
    np.testing.assert_array_equal(again, labels)
    with pytest.raises(DataError, match="line 301: expected index:value pairs"):
        read_svmlight(io.BytesIO(text.getvalue() + b"1 2:3 x\n"), "test")


def test_long_svmlight_with_short_values_is_kept_in_single_precision(monkeypatch):
    monkeypatch.setattr("margindist.datasets.svmlight.LARGE", 10)
    X, _, notes = read_svmlight(io.BytesIO(b"1 1:0.5 2:3\n-1 2:1\n"), "test")
    assert X.dtype == np.float32
    assert "single precision" in notes[1]
    X, _, notes = read_svmlight(io.BytesIO(b"1 1:0.1 2:3\n-1 2:1\n"), "test")
    assert X.dtype == np.float64
    assert len(notes) == 1


_MEMORY_PROGRAM = """
import sys
from pathlib import Path
from margindist.datasets import read_file

def resident(field):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024

path = Path(sys.argv[1])
read_file(Path(sys.argv[2]))  # compiles
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
data = read_file(path)
print((resident("VmHWM") - before) / path.stat().st_size, data.X.nnz)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux counts it")
def test_a_long_svmlight_file_is_read_in_little_memory(write, rng):
    """MARGINDIST_LONG_FILE sets the size in MB; a few hundred show that the share of the file's size stays."""
    megabytes = float(os.environ.get("MARGINDIST_LONG_FILE", "40"))
    lines = []
    for label in rng.integers(0, 2, 500):
        columns = np.sort(rng.choice(50_000, 80, replace=False)) + 1
        lines.append(f"{label} " + " ".join(f"{k}:{x:.4f}" for k, x in zip(columns, rng.random(80), strict=True)))
    block = "\n".join(lines) + "\n"
    repeats = int(megabytes * 1e6 / len(block)) + 1
    path, small = write("long.svm", block * repeats), write("small.svm", "1 1:2\n0 1:3.1\n")
    command = [sys.executable, "-c", _MEMORY_PROGRAM, str(path), str(small)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    share, entries = run.stdout.split()
    assert int(entries) == 80 * 500 * repeats
    arrays = 12 * int(entries) / path.stat().st_size
    assert float(share) < 1.2 * arrays + 20 / megabytes  # megabytes of blocks, and of what the system does meanwhile
    assert float(share) < 2


def test_target_is_guessed_and_said(write):
    rows = "".join(f"{k % 3},{k * 0.37},{k * 1.7}\n" for k in range(60))
    data = read_file(write("first.csv", "a,b,c\n" + rows))
    assert data.target_name == "a"
    assert data.notes[-1] == "The column 'a' was taken as the target: no other looks like classes."
    several = "a,b,c\n" + "".join(f"{k % 3},{k % 2},{k * 1.7}\n" for k in range(60))
    assert refusal(write("several.csv", several)) == (
        "several.csv: several columns look like classes, and the last one does not: 'a', 'b'; name the target with "
        "--target (in Python: target=)."
    )
    also = read_file(write("also.csv", "a,b\n" + "".join(f"{k % 3},{k % 2}\n" for k in range(60))))
    assert also.notes[-1] == (
        "The last column, 'b', was taken as the target. --target chooses another; these look like classes too: 'a'."
    )
    data = read_file(write("named.csv", "a,Class,c\n" + "".join(f"{k},{k % 2},{k % 3}\n" for k in range(5))))
    assert data.target_name == "Class"
    data = read_file(write("last.csv", "a,b\n1.5,u\n2.5,v\n"))
    assert data.notes == ("The last column, 'b', was taken as the target.",)
    for target in ("a", 0, "0", -3):
        assert read_file(write("given.csv", "a,b,c\n1,2,3\n2,1,3\n"), target=target).target_name == "a"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1,2,x\n3,4,y\n", ("x0", "x1")),
        ("y,n,y\nn,y,n\ny,y,n\n", ("x0", "x1")),
        ("size,weight,label\n3,4,1\n5,6,0\n", ("size", "weight")),
        ("colour,form,kind\nred,round,a\nblue,square,b\n", ("colour", "form")),
        (",a,target\n0,5,p\n1,6,q\n", ("x0", "a")),
        ("a,a,target\n0,5,p\n1,6,q\n", ("a", "a.1")),
        ("\ufeffa,b,target\n0,5,p\n1,6,q\n", ("a", "b")),
        ("1 2 x\n3 4 y\n", ("x0", "x1")),
    ],
)
def test_first_line_is_names_or_data(write, text, names):
    assert read_file(write("t.csv", text)).feature_names == names


def test_numbers_with_decimal_commas(write):
    data = read_file(write("t.csv", "a;b;y\n1,5;2;u\n-2,25;3;v\n"))
    np.testing.assert_array_equal(data.X, [[1.5, 2], [-2.25, 3]])
    assert "Commas within numbers were taken as decimal points." in data.notes


def test_a_column_that_turns_into_text_late_keeps_its_spelling(write):
    text = "a,b,y\n" + "".join(f"{k % 7:03d},{k % 5},{k % 2}\n" for k in range(100)) + "late,5,1\n"
    assert sorted(read_file(write("t.csv", text)).X["a"].cat.categories) == [*(f"00{k}" for k in range(7)), "late"]


def test_what_says_nothing_is_left_out_and_said(write):
    rows = "".join(f"{k},name{k},5,{k % 7},{'' if k == 4 else k % 2}\n" for k in range(30))
    data = read_file(write("t.csv", "id,name,unit,x,y\n" + rows))
    assert data.feature_names == ("x",)
    assert data.X.shape == (29, 1)
    text = " ".join(data.notes)
    for sentence in (
        "Left out 1 row without a value in 'y'.",
        "Left out 1 column with the same value in every row: 'unit'.",
        "Left out 1 column with a different text in every row: 'name'.",
        "Left out 1 column with whole numbers that only number the rows: 'id'.",
    ):
        assert sentence in text
    whole = read_file(write("u.csv", "id,name,unit,x,y\n" + rows), target=False)
    assert whole.y is None
    assert whole.X.shape == (30, 5)


def test_sparse_arff(write):
    header = "@relation r\n@attribute a numeric\n@attribute b {no,yes}\n@attribute class {p,q}\n@data\n"
    data = read_file(write("t.arff", header + "{0 1.5, 2 q}\n{1 yes}\n{0 ?}\n"))
    assert data.X["b"].tolist() == ["no", "yes", "no"]
    assert data.X["a"].isna().tolist() == [False, False, True]
    assert data.y.tolist() == ["q", "p", "p"]
    for bad in ("{0 1, 0 2}", "{5 1}", "{0 1", "{1 maybe}"):
        assert "line 7" in refusal(write("t.arff", header + "{1 yes}\n" + bad + "\n"))


def test_a_question_mark_in_quotes_and_comments_behind_values(write):
    header = "@relation r\n@attribute a {x, '?'} % odd\n@attribute c {R, M}\n@data\n"
    data = read_file(write("t.arff", header + "'?', R\n?, M\nx, R\n"))
    assert data.X["a"].isna().tolist() == [False, True, False] and data.X["a"][0] == "?"


def test_a_few_words_in_a_column_of_numbers_are_pointed_out(write):
    rows = "".join(f"{'unknown' if k % 30 == 3 else k},{k % 5},{'uv'[k % 2]}\n" for k in range(120))
    notes = read_file(write("t.csv", "a,,y\n" + rows)).notes
    assert "The column 'a' was read as text, for 4 of its 120 values are no numbers, such as 'unknown'." in notes
    assert "Without a name, and called by their place: x1." in notes


def test_columns_may_be_asked_for_as_text(write):
    file = write("t.csv", "code,y\n007,u\n08,v\n")
    assert read_file(file, target="y").X[0, 0] == 7.0
    assert read_file(file, target="y", text=["code"]).X["code"].tolist() == ["007", "08"]


def test_row_names_of_pandas_are_no_column(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": list("uvuv")})
    frame[frame.a > 1].to_parquet(tmp_path / "t.parquet")
    data = read_file(tmp_path / "t.parquet")
    assert data.feature_names == ("a",) and data.target_name == "y"


def test_keel_dialect_of_arff(write):
    header = "@relation r\n@attribute a real [0.0, 1.0]\n@attribute c {R, M}\n@inputs a\n@outputs c\n"
    data = read_file(write("t.dat", header + "@data\n0.5, R\n0.25, M\n"))
    np.testing.assert_array_equal(data.X, [[0.5], [0.25]])
    assert data.y.tolist() == ["R", "M"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.csv", "", "t.csv: the file is empty"),
        ("t.csv", "\n\n", "no rows"),
        ("t.csv", "a,y\n", "one|no rows|two classes"),
        ("t.csv", "a,b,y\n1,2,u\n3,v\n", "line 3: expected 3 fields, got 2"),
        ("t.csv", "a,b,y\n1,2,u\n3,4,v,5\n", "line 3: expected 3 fields, got 4"),
        ("t.csv", b"a,y\n1,u\n2,\x81\n", "line 3: byte 0x81 is not UTF-8"),
        ("t.csv", "a,y\n1,ü\n2,\n".encode() + b"3,\xff\n", "line 4: byte 0xff is not UTF-8"),
        ("t.csv", b"a,y\n1,u\n2,\x00\n", "line 3: expected text, got a zero byte"),
        ("t.csv", 'a,y\n1,"u\n', "unexpected end of data"),
        ("t.csv", "a,y\n1,u\n2,u\n", "at least two classes in the target column 'y', got only u"),
        ("t.csv", "a,y\n1,\n2,\n", "target column 'y' is empty"),
        ("t.csv", "a,y\n1,u\ninf,v\n", "line 3: the column 'a' has an infinite value"),
        ("t.csv", "y\n1\n2\n", "at least two columns"),
        ("t.csv", "a,y\n5,u\n5,v\n", "no column says anything"),
        ("t.csv", "a,b,y\n", "no rows below its first line"),
        ("t.csv", "a,y\n" + "".join(f"{k % 3},{k / 7}\n" for k in range(80)), "looks continuous"),
        ("t.svm", "1 1:2\n2 3:x\n", "t.svm, line 2: expected a finite number"),
        ("t.svm", "1 1:2\n\n# no\nu 3:1\n", "t.svm, line 4: expected a number as label"),
        ("t.svm", "1 1:2\n2 3:1 2:1\n", "line 2: has column numbers that do not ascend"),
        ("t.svm", "1 1:2\n2 3:1 4\n", "line 2: expected index:value"),
        ("t.svm", "1 1:2\n2 3:1e999\n", "line 2: expected a finite number"),
        ("t.svm", "1 qid:3 1:2\n", "line 1: has a query number"),
        ("t.svm", "1,2 1:2\n", "line 1: has several labels"),
        ("t.svm", "1 1:2\n1 2:3\n", "at least two classes in the labels, got only 1"),
        ("t.svm", "# nothing\n", "no rows"),
        (
            "t.arff",
            "@relation r\n@attribute a numeric\n@attribute y {u,v}\n@data\n1,u\nx,v\n",
            "line 6: expected a finite",
        ),
        (
            "t.arff",
            "@relation r\n@attribute a numeric\n@attribute y {u,v}\n@data\n1,u\n1,w\n",
            "line 6: 'w' is not among",
        ),
        (
            "t.arff",
            "@relation r\n@attribute a numeric\n@attribute y {u,v}\n@data\n1,u,2\n",
            "line 5: expected 2 fields",
        ),
        ("t.arff", "@relation r\n@attribute a relational\n", "line 2: the type 'relational'"),
        ("t.arff", "@relation r\n@attribute a numeric\n", "expected a line with @data"),
        ("t.arff", "@relation r\nhello\n", "line 2: expected @relation, @attribute or @data"),
        ("t.npz", "nonsense", "t.npz: the file cannot be read"),
        ("t.parquet", "nonsense", "t.parquet: the file cannot be read"),
        ("t.csv.gz", "nonsense", "t.csv.gz: the file is damaged"),
        ("t.csv.gz", gzip.compress(b"a,y\n1,u\n2,v\n" * 9, mtime=0)[:-9], "ends too early"),
        ("t.csv.xz", lzma.compress(b"a,y\n1,u\n2,v\n" * 9)[:-9], "ends too early|damaged"),
        ("t.parquet.gz", gzip.compress(b"PAR1", mtime=0), "unpack it first"),
    ],
)
def test_refusals_are_one_sentence(write, name, content, sentence):
    assert re.search(sentence, refusal(write(name, content)))


def test_other_refusals(write, tmp_path):
    assert "got a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none.csv")
    path = write("t.csv", "length,width,kind\n1,2,u\n3,4,v\n")
    assert "no column 'lenght'; did you mean 'length'?" in refusal(path, target="lenght")
    assert "numbered from 0 to 2" in refusal(path, target=7)
    assert "label first" in refusal(write("t.svm", "1 1:1\n2 1:2\n"), target="a")


def test_npz_refusals(tmp_path):
    path = tmp_path / "t.npz"
    for arrays, sentence in (
        ({"X": np.eye(3)}, "no array 'y'"),
        ({"y": np.eye(3)}, "expected the arrays X"),
        ({"X": np.eye(3), "y": np.arange(4)}, "expected 3 labels in 'y'"),
        ({"X": np.full((2, 2), np.inf), "y": [0, 1]}, "infinite values"),
        ({"X": np.eye(2), "y": [0, 1], "train": [[5]], "test": [[1]]}, "expected train to be from 0 to 1, got 5 to 5"),
        (
            {"data": [1.0], "indices": [9], "indptr": [0, 1, 1], "shape": [2, 2], "y": [0, 1]},
            "indices to be from 0 to 1",
        ),
        ({"X": np.array([[{}]], dtype=object), "y": [0]}, "Object arrays cannot be loaded"),
    ):
        np.savez(path, **arrays)
        assert sentence in refusal(path)


def read_or_refuse(path):
    try:
        read_file(path)
    except DataError as error:
        assert "\n" not in str(error)


ENDINGS = ["x.csv", "x.svm", "x.arff", "x.npz", "x.parquet", "x.csv.gz", "x.svm.bz2", "x.arff.xz", "x"]


@FUZZ
@given(name=st.sampled_from(ENDINGS), content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    read_or_refuse(path)


@FUZZ
@given(
    name=st.sampled_from(["x.csv", "x.svm", "x.arff", "x"]),
    pieces=st.lists(
        st.sampled_from([*"01.5e-+:,;\t \n\r'\"{}?%@#ab_\\é", "\n", "@data\n", "@attribute a ", "1:"]), max_size=80
    ),
)
def test_any_text_is_read_or_refused(tmp_path, name, pieces):
    path = tmp_path / name
    path.write_text("".join(pieces), encoding="utf-8", newline="")
    read_or_refuse(path)


@pytest.fixture(scope="module")
def valid_files(tmp_path_factory):
    """Return one small valid file of each format, as bytes."""
    rng = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("valid")
    frame = mixed_table(rng, rows=8)
    frame.to_csv(folder / "x.csv", index=False)
    (folder / "x.arff").write_text(to_arff(frame))
    frame.to_parquet(folder / "x.parquet")
    (folder / "x.svm").write_text("1 1:2 3:0.5\n-1 2:1e-3 # two\n1 1:1\n")
    np.savez_compressed(folder / "x.npz", X=rng.random((6, 2)), y=[0, 1] * 3, train=[[0, 1]], test=[[2]])
    sparse = sp.csr_matrix(rng.integers(0, 2, (6, 4)))
    np.savez(
        folder / "y.npz", data=sparse.data, indices=sparse.indices, indptr=sparse.indptr, shape=[6, 4], y=[0, 1] * 3
    )
    (folder / "x.csv.gz").write_bytes(gzip.compress((folder / "x.csv").read_bytes()))
    (folder / "x.svm.bz2").write_bytes(bz2.compress((folder / "x.svm").read_bytes()))
    (folder / "x.arff.xz").write_bytes(lzma.compress((folder / "x.arff").read_bytes()))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        read_file(path)
    return files


@settings(FUZZ, max_examples=200)
@given(draw=st.data())
def test_damaged_files_are_read_or_refused(tmp_path, valid_files, draw):
    name = draw.draw(st.sampled_from(sorted(valid_files)))
    content = bytearray(valid_files[name])
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(content)))
        how = draw.draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if how == "cut":
            del content[at:]
        elif how == "insert":
            content[at:at] = draw.draw(st.binary(max_size=5))
        elif how == "remove":
            del content[at : at + draw.draw(st.integers(1, 20))]
        elif at < len(content):
            content[at] ^= draw.draw(st.integers(1, 255))
    path = tmp_path / name
    path.write_bytes(content)
    read_or_refuse(path)


def column_of(path):
    """Return the first column of a file, as text where it is text."""
    X = read_file(path, target=False).X
    return X[:, 0].tolist() if isinstance(X, np.ndarray) else X.iloc[:, 0].tolist()


ODD_NUMBERS = [
    "0.128716\x0b1.07834", "1.5\x0b", "\x0c1.5", "1.5\x1f", "\xa01.5", "1.5\u3000", "\u20281.5", "\ufeff1.5", "1_000",
    "0x10", "1d5", "\u2212 5", "\u22125", "٣", "１２", "١,٥", "1．5", "+ 1", "--1", "1e", "1e+", ".", "+", "1.2.3",
    "nAn", "+nan", "1 2", "½", "1e5f", "1\x015",
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_NUMBERS)
def test_what_is_not_written_as_a_number_is_never_read_as_one(write, odd):
    assert column_of(write("t.csv", f'a,b\n2,3\n"{odd}",4\n5,6\n')) == ["2", odd, "5"]
    assert column_of(write("t.csv", f"a;b\n2,5;3\n{odd};4\n5;6\n")) == ["2,5", odd, "5"]
    header = "@relation r\n@attribute a numeric\n@attribute b {u, v}\n@data\n2,u\n"
    assert "line 6: expected a finite number for 'a'" in refusal(write("t.arff", f"{header}'{odd}',v\n"), target=False)
    assert "line 2" in refusal(write("t.svm", f"1 1:2\n0 1:{odd}\n"))


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("+1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-0", 0.0),
        ("1E+05", 1e5),
        ("00012", 12.0),
        ("9007199254740993", 9007199254740992.0),
        ("123456789012345678901234567890", 123456789012345678901234567890.0),
        ("2.2250738585072011e-308", 2.2250738585072011e-308),
        ("1e-400", 0.0),
        ("-nan", np.nan),
        ("NaN", np.nan),
        ('"7"', 7.0),
    ],
)
def test_numbers_as_programs_write_them(write, written, number):
    np.testing.assert_array_equal(column_of(write("t.csv", f"a,b\n2,3\n{written},4\n")), [2.0, number])


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=30))
@settings(FUZZ, deadline=None)
def test_delimited_numbers_are_rounded_as_python_rounds_them(tmp_path, numbers):
    numbers = [text for text in numbers if np.isfinite(float(text))] or ["1"]
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{text},0\n" for text in numbers))
    assert column_of(path) == [float(text) for text in numbers]


@pytest.mark.parametrize("point", [".", ","])
def test_short_numbers_are_what_python_reads(write, point):
    words = ["".join(letters) for size in range(1, 5) for letters in itertools.product(f"07{point}-+eE", repeat=size)]
    words += [f"{start}{word}" for start in ("123", "-12", f"0{point}12345", f"1234567{point}") for word in words[:399]]
    words = [word for word in words if word not in MISSING_NUMBERS]
    expected = [float(word.replace(point, ".")) if is_number(word.replace(point, ".")) else None for word in words]
    numbers = [word for word, value in zip(words, expected) if value is not None]
    known = [value for value in expected if value is not None]
    lines = "".join(f"{word};1\n" for word in numbers)
    assert column_of(write("t.csv", f"a;b\n{lines}")) == known
    assert column_of(write("t.csv", f"a;b\n1;1\n{lines}x;1\n"))[1:-1] == numbers
    levels = pa.array(words)
    found = numbers_among(levels, point)
    assert [None if value != value else value for value in found.tolist()] == expected


def test_decimal_points_and_commas_in_one_column_are_text(write):
    assert column_of(write("t.csv", "a;b\n1.5;u\n2,5;v\n")) == ["1.5", "2,5"]
    late = "a;b\n" + "1.500;u\n" * 60_049 + "2,5;v\n" * 60_000  # in blocks of their own
    assert set(column_of(write("t.csv", late))) == {"1.500", "2,5"}


def test_infinite_only_where_the_column_is_numbers(write):
    rows = "1.25,u\n" * 200_000
    assert "line 3: the column 'a' has an infinite value" in refusal(write("t.csv", "a,y\n1,u\n-Infinity,v\n" + rows))
    assert "line 3" in refusal(write("t.csv", "a,y\n1,u\n1e400,v\n"))
    assert column_of(write("t.csv", "a,y\ninf,u\n" + rows + "ounce,v\n"))[0] == "inf"


def test_quotes(write):
    text = 'a,b\n"x, ""y""",1\n"two\nlines",2\n5" nail,3\n" padded " ,4\n'
    assert column_of(write("t.csv", text)) == ['x, "y"', "two\nlines", '5" nail', "padded"]
    assert column_of(write("t.txt", '"light blue" 1\nred 2\n"light blue" 3\n')) == ["light blue", "red", "light blue"]
    assert column_of(write("t.csv", 'a,b\n"q""",1\nq"",2\n')) == ['q"', 'q""']
    for bad in ('"a"x,1\n', '1,"a"x\n', '"a""\n'):
        assert "line 3" in refusal(write("t.csv", "a,b\n1,2\n" + bad + "3,4\n"))
    assert "line 3: expected a delimiter after the closing quote" in refusal(write("t.txt", 'a b\n1 u\n"a"x v\n3 w\n'))
    assert "line 4: expected 2 fields, got 1" in refusal(write("t.csv", 'a,b\n1,2\n\n""\n'))  # no blank line
    late = 'a,b\n1,2\n3,"open\n' + "4,5\n" * 300_000
    assert "line 3: unexpected end of data within the quotes" in refusal(write("t.csv", late))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_fields_of_every_length_wherever_words_of_eight_bytes_end(write, ending):
    digits = ["1234567890123456789012"[:k] for k in range(1, 23)]
    numbers = [
        *digits,
        *(f"-{whole}.{whole[::-1]}" for whole in digits),
        *(f"{whole}e-{len(whole)}" for whole in digits),
    ]
    words = [f"{'ab:/'[k % 4] * (k % 20 + 1)}é" for k in range(len(numbers))]
    rows = [f"{number},{word}" for number, word in zip(numbers, words)]
    for last in range(2, len(rows) + 1):
        table = read_file(write("t.csv", "a,b" + ending + ending.join(rows[:last])), target=False).X
        assert table["a"].tolist() == list(map(float, numbers[:last]))
        assert table["b"].tolist() == words[:last]


def test_bad_lines_are_named_wherever_they_are(write):
    good = "1.5,red\n" * 300_000
    assert "line 300003: expected 2 fields, got 3" in refusal(write("t.csv", "a,b\n" + good + "\n1,2,3\n" + good))
    assert "line 300002: byte 0x81 is not UTF-8" in refusal(write("t.csv", ("a,b\n" + good).encode() + b"1,\x81\n"))
    assert "line 300002: expected text, got a zero byte" in refusal(write("t.csv", "a,b\n" + good + "1,\0\n"))
    assert "line 300002: expected lines that end in LF" in refusal(write("t.csv", "a,b\n" + good + "1,x\r2,y\n"))
    assert "line 5: expected 2 fields, got 1" in refusal(write("t.csv", 'a,b\n"two\n\nlines",u\n3\n'))


def test_long_and_wide_tables_are_those_of_pandas(write, rng):
    frame = pd.DataFrame(rng.standard_normal((20_000, 3)), columns=["a", "b", "c"])
    frame["name"] = [f"n{k}" for k in rng.integers(0, 9_000, 20_000)]
    frame["kind"] = rng.choice(["x, y", 'a "b"', "Ωμέγα"], 20_000)
    frame.loc[rng.random(20_000) < 0.1, ["a", "name"]] = None
    data = read_file(write("t.csv", frame.to_csv(index=False)), target=False)
    np.testing.assert_array_equal(data.X[["a", "b", "c"]], frame[["a", "b", "c"]])
    for name in ("name", "kind"):
        assert data.X[name].astype(object).where(data.X[name].notna(), None).tolist() == [
            value if isinstance(value, str) else None for value in frame[name]
        ]
    wide = pd.DataFrame(rng.standard_normal((300, 2_000))).round(4).add_prefix("c")
    np.testing.assert_array_equal(read_file(write("w.csv", wide.to_csv(index=False)), target=False).X, wide)


ARFF = "@relation r\n@attribute a string\n@attribute b {no, yes}\n@attribute c numeric\n@data\n"


def test_escape_sequences_in_arff(write):
    rows = [r"'tab\there'", r"'it\'s \"so\"'", r"'a\\b'", r"'50\%'", r"'A\102\u0043'", r"C:\dir"]
    text = ARFF + "".join(f"{row},no,1\n" for row in rows)
    assert column_of(write("t.arff", text)) == ["tab\there", 'it\'s "so"', "a\\b", "50%", "ABC", r"C:\dir"]
    for unknown in (r"'C:\dir'", r"'\ud800'", r"'\u12'"):
        assert "line 6: the escape sequence" in refusal(write("t.arff", ARFF + f"{unknown},no,1\n"))


def test_a_string_left_out_of_a_sparse_row_is_not_that_of_another_row(write):
    data = read_file(write("t.arff", ARFF + "{0 first, 2 1}\n{0 second}\n"), target=False)
    assert data.X["a"].tolist() == ["first", "second"]
    sentence = refusal(write("t.arff", ARFF + "{0 first, 2 1}\n{2 5}\n"), target=False)
    assert "line 7: expected a value for the string attribute 'a'" in sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ARFF + "{0 x, 00000000012 5}\n", "line 6: expected ascending column numbers"),
        (ARFF + "{0 x, \u0662 5}\n", "line 6: expected ascending column numbers"),
        (ARFF + "{0 x,}\n", "line 6: expected ascending column numbers"),
        (ARFF + "x,no,1\n{0 y}\n", "line 7: dense and sparse rows in one file"),
        (ARFF + "x,no\xa0,1\n", "line 6: 'no\\xa0' is not among"),
        (ARFF + "x,no,1\ry,no,2\n", "line 6: expected lines that end in LF"),
        (ARFF.replace("@data", "@data x,no,1"), "line 5: expected @relation, @attribute or @data"),
        (ARFF.replace("{no, yes}", "{no, yes"), "line 3: the type"),
        (ARFF.replace("{no, yes}", "{no, yes} maybe"), "line 3: the type"),
        (ARFF.replace("numeric", "numerical"), "line 4: the type"),
        (ARFF.replace("a string", "a strings"), "line 2: the type"),
    ],
)
def test_arff_refusals(write, text, sentence):
    assert sentence in refusal(write("t.arff", text), target=False)


def test_arff_types_may_have_ranges_and_comments(write):
    header = ARFF.replace("numeric", "integer [0, 9] % of {x}").replace("{no, yes}", "{no, '}'} % {odd}")
    data = read_file(write("t.arff", header + "x,'}',1\ny,no,nan\n"), target=False)
    assert data.X["b"].tolist() == ["}", "no"]
    assert data.X["c"].isna().tolist() == [False, True]


def test_svmlight_is_apart_by_blanks_alone(write):
    data = read_file(write("t.svm", "\ufeff1 1:2\t2:3 \r\n0 1:4 # end\r\n"))
    np.testing.assert_array_equal(data.X.toarray(), [[2, 3], [4, 0]])
    for odd in ("\x0b", "\x0c", "\x1c", "\0", "\r", "\xa0"):
        assert "line 2" in refusal(write("t.svm", f"1 1:2\n0 1:2{odd}2:3\n"))


@pytest.mark.parametrize("dtype", ["f2", "f4", "g", ">f8", "i1", "u8", ">i4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_numbers_of_every_type(tmp_path, dtype, order):
    X = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype, order=order)
    np.savez(tmp_path / "t.npz", X=X, y=np.array([3, 4]).astype(dtype))
    data = read_file(tmp_path / "t.npz", target=False)
    assert data.X.dtype == np.float64 and data.X.flags.c_contiguous
    np.testing.assert_array_equal(data.X, X)
    np.savez(tmp_path / "t.npz", X=X, y=np.array([0, 1]).astype(dtype))
    y = read_file(tmp_path / "t.npz").y
    assert y.dtype == (np.float64 if np.dtype(dtype).kind == "f" else np.int64)


def test_npz_values_that_would_change_are_refused(tmp_path):
    path, X = tmp_path / "t.npz", np.eye(2)
    csr = {"data": [1.0, 1.0], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 2]}
    for arrays, sentence in (
        ({"X": X, "y": np.array([1, 2**63 + 1], dtype=np.uint64)}, "too large"),
        ({"X": X, "y": np.array([0.0, np.nan])}, "missing"),
        ({"X": X, "y": np.array([1, 1 + np.longdouble(2) ** -60])}, "too long"),
        ({"X": X, "y": np.array([b"a", b"b"])}, "expected y to be labels, got |S1"),
        ({"X": X + 1j, "y": [0, 1]}, "table of numbers, got complex128"),
        ({"X": X.astype("M8[s]"), "y": [0, 1]}, "table of numbers, got datetime64[s]"),
        ({"X": np.zeros((2, 2), dtype="f8,f8"), "y": [0, 1]}, "table of numbers, got [("),
        ({**csr, "indices": [0, 2**32 + 1], "y": [0, 1]}, "indices to be from 0 to 1"),
        ({**csr, "indices": [0.0, 1.5], "y": [0, 1]}, "indices to be whole numbers"),
        ({**csr, "shape": [2.5, 2.0], "y": [0, 1]}, "shape to be whole numbers"),
        ({**csr, "shape": [2, 2**40], "y": [0, 1]}, "shape to be from 0"),
        ({"X": X, "y": [0, 1], "train": [[0.5]], "test": [[1]]}, "train to be whole numbers"),
        ({"X": X, "y": [0, 1], "feature_names": ["a"]}, "2 different names"),
    ):
        np.savez(path, **arrays)
        assert sentence in refusal(path)


def test_npz_is_bounded_before_anything_is_allocated(tmp_path):
    path = tmp_path / "t.npz"

    def members(X):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            y = io.BytesIO()
            np.save(y, np.array([0, 1]))
            archive.writestr("y.npy", y.getvalue())
            archive.writestr("X.npy", X)

    def declared(shape, descr="<f8", n_bytes=32):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
        return header.getvalue() + bytes(n_bytes)

    start = time.process_time()
    for content, sentence in (
        (declared((0, 4_000_000_000), n_bytes=0), "expected X to have rows and columns"),
        (declared((2, 4_000_000_000)), "cannot be read|ends too early"),
        (declared((2, 2), "|O"), "cannot be read"),
        (b"no array", "cannot be read|got no array"),
        (b"", "cannot be read|ends too early|got no array"),
    ):
        members(content)
        assert re.search(sentence, refusal(path))
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["t.csv.gz", "t.npz", "t.parquet", "t.svm.xz", "t.arff.bz2"])
def test_small_files_do_not_become_more_than_allowed(tmp_path, monkeypatch, name):
    rows = 200_000
    if name == "t.npz":
        np.savez_compressed(tmp_path / name, X=np.zeros((rows, 5)), y=np.arange(rows) % 2)
    elif name == "t.parquet":
        pd.DataFrame(np.zeros((rows, 5))).add_prefix("x").assign(y=np.arange(rows) % 2).to_parquet(tmp_path / name)
    else:
        line = {"t.csv.gz": "0,0,1\n", "t.svm.xz": "1 1:1\n", "t.arff.bz2": "0,0\n"}[name]
        head = "@relation r\n@attribute a real\n@attribute b real\n@data\n" if name == "t.arff.bz2" else ""
        content = (head + line * rows).encode()
        (tmp_path / name).write_bytes(PACK[name[name.rindex(".") :]](content))
    assert f"{name}: unpacks to more than 0.0005 GB" in refusal(tmp_path / name, max_unpacked="500KB")
    assert "MARGINDIST_MAX_UNPACKED=" in refusal(tmp_path / name, max_unpacked="500KB")
    monkeypatch.setenv("MARGINDIST_MAX_UNPACKED", "500 KB")
    assert "unpacks to more than" in refusal(tmp_path / name)
    monkeypatch.setenv("MARGINDIST_MAX_UNPACKED", "much")
    assert "MARGINDIST_MAX_UNPACKED must be a size such as 500MB or 2GB, got 'much'" in refusal(tmp_path / name)


def test_whole_numbers_that_are_rounded_are_named(write, tmp_path):
    said = "Whole numbers beyond 2**53, which are rounded to 16 digits, in 'a'; read what is no quantity as text."
    rows = "".join(f"{2**60 + 7 * k * k},{k % 3}.5,{'uv'[k % 2]}\n" for k in range(9))
    assert said in read_file(write("t.csv", "a,b,y\n" + rows)).notes
    frame = pd.DataFrame({"a": np.array([2**63 + 5, 3, 2] * 3, dtype=np.uint64), "y": list("uvu") * 3})
    frame.to_parquet(tmp_path / "t.parquet")
    assert said in read_file(tmp_path / "t.parquet").notes


def test_lines_of_blanks_are_no_rows_of_one_column(write):
    assert column_of(write("t.csv", "a\nu\n \nv\n\t\n\nw\n")) == ["u", "v", "w"]
    assert column_of(write("t.csv", "a,b\nu,1\n \nv,2\n")) == ["u", "v"]


def test_a_byte_order_mark_is_left_out_at_the_top_alone(write):
    assert column_of(write("t.csv", "\ufeffa,b\n\ufeff,1\nv,2\n")) == ["\ufeff", "v"]


def test_text_that_does_not_repeat_for_long_is_not_looked_at_further(write, monkeypatch):
    for module in ("dataset", "delimited"):
        monkeypatch.setattr(f"margindist.datasets.{module}.MANY_ROWS", 500)
    rows = [f"n{k * 7919 % 2000},{k % 7}.5,{'uv'[k % 2]}" for k in range(1500)] + ["n3,1.5,"]
    path = write("t.csv", "name,a,kind\n" + "\n".join(rows) + "\n")
    data = read_file(path)
    assert data.feature_names == ("a",) and len(data.y) == 1500
    assert "Left out 1 column with a different text in each of the first 500 rows: 'name'." in data.notes
    words = [row.split(",")[0] for row in rows]
    assert read_file(path, target=False).X["name"].tolist() == words
    assert "target column 'name' looks continuous" in refusal(path, target="name")
    days = [f"2024-{k % 12 + 1:02}-{k % 28 + 1:02}" for k in range(1500)]
    dates = [f"{day} {k // 60 % 24:02}:{k % 60:02}:{k % 59:02},{k % 2}" for k, day in enumerate(days)]
    assert "day (hour)" in read_file(write("u.csv", "day,kind\n" + "\n".join(dates) + "\n")).feature_names


def test_long_first_rows(write):
    text = "some words,\nand more\n" * 300
    rows = "".join(f'{k},"{text}{k}"\n' for k in range(60))
    assert read_file(write("t.csv", "a,b\n" + rows), target=False).X["b"][59] == (text + "59").replace('""', '"')
    names = ",".join(f"{'column' * 20}{k}" for k in range(12_000))
    line = ",".join(["1"] * 12_000)
    assert len(read_file(write("w.csv", f"{names}\n{line}\n{line}\n"), target=False).feature_names) == 12_000


def test_twenty_thousand_columns_of_one_name(write):
    rows = "\n".join(",".join(str(k * j % 7) for j in range(20_000)) for k in range(1, 8))
    start = time.process_time()
    data = read_file(write("t.csv", ",".join(["a"] * 20_000) + "\n" + rows), target=False)
    assert time.process_time() - start < 8
    assert data.feature_names[:2] == ("a", "a.1") and data.feature_names[-1] == "a.19999"


def test_a_long_number_with_a_large_exponent(write):
    zeros = "0." + "0" * 99_999
    assert column_of(write("t.csv", f"a,y\n{zeros}1e100000,u\n2,v\n")) == [1.0, 2.0]
    assert "line 2: the column 'a' has an infinite value" in refusal(write("t.csv", f"a,y\n{zeros}1e100500,u\n1,v\n"))


def test_a_part_of_a_date_is_never_the_target(write):
    rows = "".join(f"{k * 0.7},{'uv'[k % 2]},2024-0{k % 9 + 1}-11\n" for k in range(40))
    data = read_file(write("t.csv", "a,kind,visit_date\n" + rows))
    assert data.target_name == "kind"
    assert "The last column that is no part of a date, 'kind', was taken as the target." in data.notes
    assert "got dates alone" in refusal(write("u.csv", "sold\n" + "".join(f"2024-01-{k:02}\n" for k in range(1, 30))))


def test_quotes_that_come_late_and_cross_blocks(write, monkeypatch):
    monkeypatch.setattr("margindist.datasets.delimited._BLOCK", 512)
    rows = [f'{k},"x, ""{k}""\nend"' if k > 9000 else f"{k},y" for k in range(12_000)]
    words = read_file(write("t.csv", "a,b\n" + "\n".join(rows) + "\n"), target=False).X["b"].astype(str).tolist()
    assert words == [f'x, "{k}"\nend' if k > 9000 else "y" for k in range(12_000)]
    rows[11_000] = '5,"a"b'
    assert "line 13001: expected a delimiter after" in refusal(write("t.csv", "a,b\n" + "\n".join(rows) + "\n"))


@pytest.mark.parametrize(
    ("kind", "mutants"), [("csv", 130), ("arff", 150), ("npz", 100), ("parquet", 60), ("feather", 60), ("svm", 150)]
)
def test_mutants_are_refused_or_read_as_the_references_read_them(tmp_path, kind, mutants):
    """See benchmarks/fuzz_readers.py, which runs many more."""
    if kind == "arff":
        pytest.importorskip("arff")
    tally = fuzz_readers.run(kind, range(mutants), seed=0, folder=tmp_path)
    assert not tally.failures
    assert tally.counts["the same values"] > mutants // 20


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "code"},
        {"kind": "numbers"},
        {"kind": "numbers", "point": "x", "thousands": "", "before": "", "after": ""},
        {"kind": "dates", "order": "week first", "hours": "False", "zone": ""},
        {"kind": "dates", "order": ["day first"], "hours": "False", "zone": ""},
        ["words"],
        None,
    ],
    ids=str,
)
def test_how_a_column_was_read_may_come_from_a_stranger(write, told):
    path = write("t.csv", "a,y\n1,u\n2,v\n")
    assert "how the column 'a' was read is not understood" in refusal(path, spellings={"a": told})


def test_what_was_read_is_read_so_again(write):
    text = "share;sold;code;size\n12 %;31/12/2024;007;1,5\n;;;\n-3 %;01/02/2024;8;2\n"
    data = read_file(write("t.csv", text), target=False, text=["code"])
    assert [told["kind"] for told in data.spellings.values()] == ["numbers", "dates", "words", "numbers"]
    again = read_file(write("u.csv", text), target=False, spellings=data.spellings)
    pd.testing.assert_frame_equal(again.X, data.X)
    one = read_file(write("v.csv", "share;sold;code;size\n;02/01/2024;;\n"), target=False, spellings=data.spellings)
    assert one.X["sold (month)"].tolist() == [1.0] and one.X["share"].isna().all() and one.X["code"].isna().all()
