"""OpenML's data sets as scikit-learn fetches them, and one sentence for whatever goes wrong."""

from http.client import IncompleteRead
from urllib.error import HTTPError, URLError

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.utils import Bunch

from margindist.datasets import DataError, load, openml


def glass():
    """What scikit-learn returns: neither the target nor the number of the row is among the features."""
    X = pd.DataFrame({f"a{k}": [(i * (k + 3)) % 101 / 7 for i in range(214)] for k in range(9)})
    y = pd.Series(pd.Categorical(["abcdef"[i % 6] for i in range(214)]), name="Type")
    return Bunch(data=X, target=y, feature_names=list(X.columns), details={"name": "glass"})


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """What OpenML answers, an error or a data set, and with what it was asked for it."""
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)
    found = {"answer": glass(), "asked": []}

    def fetch_openml(**options):
        found["asked"].append(options)
        if isinstance(found["answer"], Exception):
            raise found["answer"]
        return found["answer"]

    monkeypatch.setattr(openml, "fetch_openml", fetch_openml)
    return found


def refusal(name="glass"):
    with pytest.raises(DataError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_set_is_fetched_by_its_number(answers):
    data = load("glass")
    assert data.X.shape == (214, 9) and data.X.dtype == np.float64
    assert set(data.y) == set("abcdef")
    assert data.source == "OpenML, glass"
    assert data.feature_names == tuple(f"a{k}" for k in range(9))
    assert answers["asked"] == [{"data_id": 41, "as_frame": "auto", "parser": "auto"}]


def test_rows_without_a_label_are_left_out(answers):
    found = answers["answer"]
    found.data = pd.concat([found.data, found.data[:1]], ignore_index=True)
    found.target = pd.concat([found.target.astype(object), pd.Series([None])], ignore_index=True)
    assert load("glass").X.shape == (214, 9)


def test_another_set_or_shape_is_refused(answers):
    answers["answer"].details["name"] = "grass"
    assert "OpenML's data set is grass, expected glass" in refusal()
    answers["answer"] = glass()
    answers["answer"].data["id"] = np.arange(214)
    assert "expected 214 rows, 9 features and 6 classes, got 214, 10 and 6" in refusal()
    answers["answer"].data = answers["answer"].data[[]]
    assert "expected features and one target" in refusal()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (URLError("no route"), "did not answer; check the network, or put glass.npz into the folder"),
        (HTTPError("http://x", 503, "busy", None, None), "did not answer (503 busy)"),
        (TimeoutError(), "did not answer; check the network"),
        (IncompleteRead(b""), "did not answer; check the network"),
        (PermissionError(13, "Permission denied", "/kept"), "cannot be kept in /kept (Permission denied); set SCIKIT"),
        (ValueError("md5 checksum of local file does not match.\nMore"), "cannot be read (md5 checksum of local file"),
        (KeyError("data"), "what OpenML has cannot be read ('data')"),
        (ImportError("pandas"), "need pandas: install it with pip install 'margindist[files]'"),
    ],
)
def test_whatever_goes_wrong_is_one_sentence(answers, error, sentence):
    answers["answer"] = error
    assert sentence in refusal()


def test_nominal_columns_are_encoded_as_declared(answers):
    rng = np.random.default_rng(0)
    levels = [2] * 22 + [3] * 8
    values = [np.array(list("012"))[rng.permutation(11055) % n] for n in levels]
    X = pd.DataFrame({f"a{k}": pd.Categorical(column) for k, column in enumerate(values)})
    y = pd.Series(pd.Categorical(np.where(np.arange(11055) % 2, "1", "-1")))
    answers["answer"] = Bunch(data=X, target=y, feature_names=list(X.columns), details={"name": "PhishingWebsites"})
    data = load("phishing")
    assert data.X.shape == (11055, 68)
    assert set(np.unique(data.X)) == {0.0, 1.0}


def test_sparse_rows_stay_sparse_and_versions_are_found_by_name(answers):
    X = sp.csr_matrix([[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    y = np.array(["1", "-1", "-1"])
    answers["answer"] = Bunch(data=X, target=y, feature_names=["a", "b"], details={"name": "real sim"})
    found, labels, names = openml.read_openml("real-sim", {"name": "real sim"})
    assert sp.issparse(found) and (found != X).nnz == 0 and names == ("a", "b")
    assert labels.tolist() == ["1", "-1", "-1"]
    assert answers["asked"][0]["name"] == "real sim" and answers["asked"][0]["version"] == 1
