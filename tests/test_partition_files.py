"""Rows in files: what is read, what is encoded, and what is refused, in one sentence that names the place."""

import os
import pickle
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import MinMaxScaler, Normalizer, PowerTransformer, StandardScaler

from margindist.datasets import DataError, Partitions, encoder, read_file

pytest.importorskip("pyarrow.feather")


@pytest.fixture
def rows():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(500, 4)).astype(np.float32)
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=500) > 0, "yes", "no")


@pytest.fixture
def folder(rows, tmp_path):
    """The same rows in every format."""
    X, y = rows
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "by_columns.npy", np.asfortranarray(X))
    np.save(tmp_path / "y.npy", y)
    for number, span in enumerate((slice(0, 120), slice(120, 121), slice(121, 500))):
        for name, values in (("X", X), ("y", y)):
            (tmp_path / name).mkdir(exist_ok=True)
            np.save(tmp_path / name / f"{number}.npy", values[span])
        frame(X[span], y[span]).to_parquet(tmp_path / f"part-{number}.parquet", row_group_size=100)
    (tmp_path / "table").mkdir()
    for number in range(3):
        os.rename(tmp_path / f"part-{number}.parquet", tmp_path / "table" / f"part-{number}.parquet")
    pa.feather.write_feather(frame(X, y), tmp_path / "rows.feather", chunksize=90)
    frame(X, y).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "texts").mkdir()
    for number, span in enumerate((slice(0, 120), slice(120, 121), slice(121, 500))):
        frame(X[span], y[span]).to_csv(tmp_path / "texts" / f"{number}.csv", index=False)
    dump_svmlight_file(X, (y == "yes").astype(int), str(tmp_path / "rows.svm"), zero_based=False)
    return tmp_path


def frame(X, y):
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(y=y)


def whole(partitions):
    pieces = list(partitions)
    X = [piece.X for piece in pieces]
    return sp.vstack(X).toarray() if sp.issparse(X[0]) else np.concatenate(X), np.concatenate([p.y for p in pieces])


def made(folder, rows_per_partition=None):
    """All partitions of the folder, by format."""
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    step = {"rows_per_partition": rows_per_partition}
    return {
        "arrays": Partitions.from_arrays(X, y, **step),
        "list": Partitions.from_arrays([X[:200], X[200:]], [y[:200], y[200:]]),
        "csr": Partitions.from_arrays(sp.csr_matrix(X), y, **step),
        "memmap": Partitions.from_arrays(np.load(folder / "X.npy", mmap_mode="r"), y, **step),
        "npy": Partitions.from_npy(folder / "X.npy", folder / "y.npy", **step),
        "by columns": Partitions.from_npy(folder / "by_columns.npy", y, **step),
        "npy folder": Partitions.from_npy(folder / "X", folder / "y", **step),
        "parquet": Partitions.from_parquet(folder / "table", "y", **step),
        "feather": Partitions.from_feather(folder / "rows.feather", "y", **step),
        "csv": Partitions.from_csv(folder / "rows.csv", "y", dtype=np.float32, **step),
        "csv folder": Partitions.from_csv(folder / "texts", "y", dtype=np.float32, **step),
        "svmlight": Partitions.from_svmlight(folder / "rows.svm", **step),
    }


@pytest.mark.parametrize("rows_per_partition", [None, 90])
def test_all_formats_hold_the_same_rows_in_order(folder, rows, rows_per_partition):
    for name, partitions in made(folder, rows_per_partition).items():
        X, y = whole(partitions)
        assert (partitions.n_rows, partitions.n_features) == rows[0].shape, name
        assert np.array_equal(X, rows[0]) or (name == "svmlight" and np.allclose(X, rows[0], rtol=1e-15)), name
        assert np.array_equal(y, (rows[1] == "yes").astype(int) if name == "svmlight" else rows[1]), name
        assert partitions.dtype == (np.float64 if name == "svmlight" else np.float32), name
        assert partitions.sizes == tuple(len(piece.y) for piece in partitions), name
        if rows_per_partition and name not in ("list", "svmlight", "parquet", "csv", "csv folder"):
            assert max(partitions.sizes) <= rows_per_partition, name


def test_files_pickle_as_paths(folder, rows):
    for name, partitions in made(folder, 90).items():
        content = pickle.dumps(partitions)
        assert np.array_equal(whole(pickle.loads(content))[1], whole(partitions)[1])
        if name not in ("arrays", "list", "csr", "memmap", "by columns"):  # these have arrays in memory
            assert len(content) < rows[0].nbytes, name


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, bool, ">f8", np.float16])
def test_numbers_of_other_types_become_floats(tmp_path, dtype):
    X = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    partitions = Partitions.from_npy(tmp_path / "X.npy", rows_per_partition=3)
    (first, y, weights), second = partitions
    assert first.dtype == partitions.dtype == (np.float32 if dtype is np.float16 else np.float64)
    assert np.array_equal(np.vstack([first, second.X]), X.astype(float))
    assert y is None and weights is None
    assert Partitions.from_npy(tmp_path / "X.npy", dtype=np.float32)[0].X.dtype == np.float32


def test_weights_and_columns_of_parquet(tmp_path, rows):
    table = frame(*rows).assign(w=np.arange(500) % 3, ignored=1)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=100)
    partitions = Partitions.from_parquet(tmp_path / "t.parquet", "y", weight="w", columns=["x2", "x0"])
    X, _, weights = partitions[0]
    assert partitions.feature_names == ("x2", "x0")
    assert np.array_equal(X, rows[0][:, [2, 0]])
    assert np.array_equal(weights, np.arange(500) % 3)


# ---------------------------------------------------------------------- encoding


@pytest.fixture
def mixture(tmp_path):
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "height": rng.normal(size=600),
            "count": rng.integers(0, 9, 600),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue"], 600)),
            "name": [f"name {int(value)}" for value in rng.exponential(25, 600)],  # beyond fifty
            "tied": ["b", "a"] * 300,
            "flag": rng.random(600) < 0.4,
            "empty": np.full(600, np.nan),
            "y": rng.integers(0, 3, 600),
        }
    )
    table.loc[rng.random(600) < 0.1, ["height", "colour"]] = None
    table.loc[[0, 1], "tied"] = None
    table.to_parquet(tmp_path / "mixture.parquet", row_group_size=70)
    return tmp_path / "mixture.parquet"


def test_encoding_over_parts_is_that_of_all_rows(mixture):
    data = read_file(mixture, target=False)
    X = data.X.drop(columns="y")
    expected = encoder(X).fit(X)
    partitions = Partitions.from_parquet(mixture, "y", rows_per_partition=200).encoded()
    assert partitions.n_partitions > 2
    np.testing.assert_allclose(whole(partitions)[0], expected.transform(X), rtol=1e-13, atol=1e-15)
    (found,) = partitions.transformers
    assert list(found.get_feature_names_out()) == list(expected.get_feature_names_out())
    unseen = X.iloc[:3].assign(
        height=[np.nan, 9.0, 1.0], colour=["violet", None, "red"], name="none of these", tied=None
    )
    np.testing.assert_allclose(found.transform(unseen), expected.transform(unseen), rtol=1e-13)


@pytest.mark.parametrize("name", ["npy", "csr", "svmlight"])
def test_encoding_of_numbers_over_parts_is_that_of_all_rows(folder, name):
    partitions = made(folder, 90)[name]
    X = np.vstack([piece.X.toarray() if sp.issparse(piece.X) else piece.X for piece in partitions])
    X = X if name == "npy" else sp.csr_matrix(X)
    expected = encoder(X).fit_transform(X)
    found = partitions.encoded()
    assert found.dtype == partitions.dtype
    np.testing.assert_allclose(
        whole(found)[0], expected.toarray() if sp.issparse(expected) else expected, rtol=1e-6, atol=1e-7
    )


def test_scalers_learn_from_parts(folder, rows):
    partitions = made(folder, 90)["npy"]
    scaler = StandardScaler()
    twice = partitions.transformed(scaler).transformed(MinMaxScaler())
    assert not hasattr(scaler, "mean_")
    assert len(twice.transformers) == 2
    expected = MinMaxScaler().fit_transform(StandardScaler().fit_transform(rows[0]))
    np.testing.assert_allclose(whole(twice)[0], expected, atol=1e-6)
    fitted = StandardScaler().fit(rows[0][:50])
    np.testing.assert_allclose(whole(partitions.transformed(fitted))[0], fitted.transform(rows[0]), atol=1e-6)
    assert np.allclose(np.linalg.norm(whole(partitions.transformed(Normalizer()))[0], axis=1), 1.0)
    with pytest.raises(DataError, match=r"PowerTransformer cannot learn from parts.*sample"):
        partitions.transformed(PowerTransformer())


def test_a_sample_is_rows_of_all_parts(folder, mixture, rows):
    for name, partitions in made(folder, 90).items():
        X, y, weights = partitions.sample(100, seed=1)
        X = X.toarray() if sp.issparse(X) else X
        there = {tuple(row): label for row, label in zip(*whole(partitions), strict=True)}
        assert all(there[tuple(row)] == label for row, label in zip(X, y, strict=True)), name
        assert len({tuple(row) for row in X}) == 100 and weights is None
    X, _, _ = Partitions.from_parquet(mixture, "y", rows_per_partition=100).sample(10**6)
    assert X["colour"].astype(str).tolist() == read_file(mixture, target=False).X["colour"].astype(str).tolist()


# ---------------------------------------------------------------------- text


@pytest.fixture
def german(tmp_path):
    """A table with everything that text may have, in lines of which some have line ends within quotes."""
    lines = []
    for k in range(3000):
        size, day = f"{k / 7:.3f}".replace(".", ","), f"{k % 28 + 1:02}.{k % 12 + 1:02}.2024"
        lines.append(f'{k};{size};{day};"a ""{k % 5}""\nb";{k % 9} %;{"uv"[k % 2]}')
    path = tmp_path / "german.csv"
    path.write_text("no;size;sold;note;share;kind\n" + "\n".join(lines) + "\n")
    return path


def test_csv_in_parts_is_what_read_file_makes_of_all_of_it(german):
    data = read_file(german, target=False)
    rows = Partitions.from_csv(german, "kind", rows_per_partition=200)
    assert rows.n_partitions > 5 and rows.n_rows == 3000
    assert rows.feature_names == tuple(name for name in data.feature_names if name != "kind")
    X = pd.concat([piece.X.assign(note=piece.X["note"].astype(str)) for piece in rows], ignore_index=True)
    expected = data.X.drop(columns="kind").assign(note=data.X["note"].astype(str))
    pd.testing.assert_frame_equal(X, expected)
    assert np.array_equal(np.concatenate([piece.y for piece in rows]), data.X["kind"].astype(str))
    assert rows.spellings == data.spellings


def test_csv_in_parts_finds_late_words_and_bad_lines(tmp_path):
    good = [f"{k}.5,2024-01-{k % 28 + 1:02},{k % 2}" for k in range(2000)]
    path = tmp_path / "t.csv"
    path.write_text("a,day,y\n" + "\n".join([*good, "late,2024-01-01,0"]) + "\n")
    rows = Partitions.from_csv(path, "y", rows_per_partition=100)
    assert str(rows[0].X["a"].dtype) == "category" and rows[0].X["a"][1] == "1.5"
    path.write_text("a,day,y\n" + "\n".join([*good, "1,2"]) + "\n")
    refused(r"t\.csv, line 2002: expected 3 fields, got 2", Partitions.from_csv, path, "y", rows_per_partition=100)
    path.write_text("a,day,y\n" + "\n".join([*good, "1,31/12/2024,0"]) + "\n")
    told = {"day": {"kind": "dates", "order": "year first", "hours": "False", "zone": ""}}
    rows = Partitions.from_csv(path, "y", rows_per_partition=100, spellings=told)
    refused(r"line 2002: the column 'day' is to be read as dates with the year first", lambda: list(rows))


# ---------------------------------------------------------------------- what is refused


def refused(words, call, *args, **named):
    with pytest.raises(DataError, match=words) as caught:
        call(*args, **named)
    sentence = str(caught.value)
    assert "\n" not in sentence and re.search(r"[.!?]$", sentence), sentence
    return sentence


def test_files_that_do_not_fit_each_other(folder, rows):
    X, y = rows
    np.save(folder / "X" / "9.npy", X[:, :3])
    refused(r"9.npy: expected 4 columns, as in 0.npy, got 3", Partitions.from_npy, folder / "X")
    refused(
        "expected 500 labels, as many as there are rows, got 120",
        Partitions.from_npy,
        folder / "X.npy",
        folder / "y" / "0.npy",
    )
    refused("500 rows, but labels of the shape", Partitions.from_npy, folder / "X.npy", y[:3])
    refused("expected numbers in rows and columns, got <U3", Partitions.from_npy, folder / "y.npy")
    frame(X[:, :3], y).to_parquet(folder / "table" / "part-9.parquet")
    refused(r"part-9.parquet: lacks the column 'x3', which part-0", Partitions.from_parquet, folder / "table", "y")
    frame(X, y).assign(x3="text").to_parquet(folder / "table" / "part-9.parquet")
    refused(r"part-9.parquet: expected numbers in the column 'x3'", Partitions.from_parquet, folder / "table", "y")
    refused("there is no column 'kind' for the target", Partitions.from_parquet, folder / "table", "kind")
    refused("partition 1: expected 4 columns, as in partition 0, got 3", Partitions.from_arrays, [X, X[:, :3]])
    refused(
        "expected 2 columns, got one with the number 4", Partitions.from_svmlight, folder / "rows.svm", n_features=2
    )
    refused("expected NPY files in this folder", Partitions.from_npy, folder / "table")
    refused("no such file", Partitions.from_parquet, folder / "nothing.parquet")
    refused(
        "rows_per_partition must be None or a positive integer",
        Partitions.from_npy,
        folder / "X.npy",
        rows_per_partition=0,
    )
    refused("dtype must be float32 or float64", Partitions.from_npy, folder / "X.npy", dtype=int)


@pytest.mark.parametrize("name", ["npy", "npy folder", "parquet", "feather", "csv", "svmlight", "memmap"])
def test_files_that_vanish_or_change_are_named(folder, name):
    partitions = made(folder, 90)[name]
    last = partitions.n_partitions - 1
    files = {
        "npy folder": folder / "X" / "2.npy",
        "parquet": folder / "table" / "part-2.parquet",
        "feather": folder / "rows.feather",
        "csv": folder / "rows.csv",
        "svmlight": folder / "rows.svm",
    }
    file = files.get(name, folder / "X.npy")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    refused(f"{file.name}: the file had {len(content)} bytes when it was first read", partitions.__getitem__, last)
    file.write_bytes(content + b" ")
    refused(f"{file.name}: the file has changed since", partitions.__getitem__, last)
    file.unlink()
    refused(f"{file.name}: the file has vanished", partitions.__getitem__, last)


@pytest.mark.parametrize("name", ["X.npy", "part.parquet", "rows.svm"])
def test_damaged_files_are_named(folder, rows, name):
    frame(*rows).to_parquet(folder / "part.parquet", row_group_size=100)
    content = (folder / name).read_bytes()
    make = {"X.npy": Partitions.from_npy, "part.parquet": Partitions.from_parquet, "rows.svm": Partitions.from_svmlight}
    (folder / name).write_bytes(content[: len(content) - len(content) // 3] + b"?")
    refused(name, make[name], folder / name)
    (folder / name).write_bytes(b"")
    refused(name, make[name], folder / name)


def test_a_damaged_row_group_is_named(folder, rows):
    table = frame(*rows)
    table.to_parquet(folder / "p.parquet", row_group_size=100, compression="zstd")
    content = bytearray((folder / "p.parquet").read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    (folder / "p.parquet").write_bytes(content)
    partitions = Partitions.from_parquet(folder / "p.parquet", "y", rows_per_partition=100)
    refused(r"p.parquet, row group \d: the file", lambda: list(partitions))


def test_rows_without_a_label_are_counted(tmp_path, rows):
    table = frame(*rows)
    table.loc[[130, 140], "y"] = None
    table.to_parquet(tmp_path / "t.parquet", row_group_size=100)
    partitions = Partitions.from_parquet(tmp_path / "t.parquet", "y", rows_per_partition=100)
    refused("row group 1: 2 of 100 rows have no value in the target", partitions.__getitem__, 1)


def test_lines_of_later_parts_are_counted_from_the_first(folder):
    lines = (folder / "rows.svm").read_text().splitlines()
    lines[400] = "1 2:x"
    (folder / "rows.svm").write_text("\n".join(lines))
    refused(
        "rows.svm, line 401: expected a finite number",
        Partitions.from_svmlight,
        folder / "rows.svm",
        rows_per_partition=50,
    )
    refused(
        "unpack it first",
        lambda: ((folder / "a.gz").write_bytes(b"\x1f\x8b12"), Partitions.from_svmlight(folder / "a.gz")),
    )
