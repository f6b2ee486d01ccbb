"""Sparse matrices whose arrays were changed after they were made: refused in a sentence, wherever they come in."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from margindist import LDMClassifier, PUMMAClassifier
from margindist.datasets import DataError, Partitions
from margindist.spaces.sparse import checked_csr, is_canonical
from tests.test_common import every_classifier

Y = np.arange(60) % 2


def matrix(form="csr", kind=sp.csr_matrix):
    """Return 60 rows in which the first column tells the classes apart."""
    X = sp.random(60, 12, 0.3, format="lil", random_state=0)
    X[:, 0] = (Y + 1.0)[:, None]
    return kind(X).asformat(form)


def _put(name, place, value):
    def damage(X):
        getattr(X, name)[place] = value

    return damage


def _cut(name, many):
    def damage(X):
        setattr(X, name, getattr(X, name)[:-many])

    return damage


def _replace(name, change):
    def damage(X):
        setattr(X, name, change(getattr(X, name)))

    return damage


DAMAGE = {
    "index too large": _put("indices", 3, 10**8),
    "index negative": _put("indices", 3, -5),
    "row end too large": _put("indptr", 5, 10**8),
    "row end negative": _put("indptr", 5, -5),
    "rows overlap": _put("indptr", 5, 0),
    "first row begins late": _put("indptr", 0, 1),
    "more values than there are": _put("indptr", -1, 10**7),
    "no values, but rows with some": _put("indptr", -1, 0),
    "row ends missing": _cut("indptr", 3),
    "values missing": _cut("data", 40),
    "indices missing": _cut("indices", 40),
    "indices of numbers with a fraction": _replace("indices", lambda indices: indices + 0.5),
    "values in two dimensions": _replace("data", lambda data: data[:, None]),
    "shape too small": _replace("_shape", lambda shape: (shape[0] // 2, shape[1] // 2)),
}
TUPLES = {
    "column too large": lambda rows, columns: (rows, np.where(columns == 3, 10**8, columns)),
    "row too large": lambda rows, columns: (np.where(rows == 3, 10**8, rows), columns),
    "column negative": lambda rows, columns: (rows, np.where(columns == 3, -1, columns)),
    "too few": lambda rows, columns: (rows[:-3], columns[:-3]),
}


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_arrays_that_do_not_fit_are_refused(damage, form, kind):
    X = matrix(form, kind)
    damage(X)
    with pytest.raises(ValueError, match=r"^here: expected a sparse matrix whose indices fit .*, got .*\.$"):
        checked_csr(X, "here")


@pytest.mark.parametrize("damage", TUPLES.values(), ids=TUPLES)
def test_coordinates_that_do_not_fit_are_refused(damage):
    X = matrix("coo")
    X.coords = damage(*X.coords)
    with pytest.raises(ValueError, match=r"^here: expected a sparse matrix .* indices of (rows|columns)"):
        checked_csr(X, "here")


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_good_matrices_pass_as_they_are(form, kind):
    X = matrix(form, kind)
    checked = checked_csr(X, "here")
    assert checked.format == "csr" and (checked != kind(X)).nnz == 0
    if form == "csr":
        assert np.shares_memory(checked.data, X.data) and np.shares_memory(checked.indices, X.indices)


@every_classifier
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_classifier_refuses_them(classifier):
    bad = matrix()
    bad.indices[3] = 10**8
    with pytest.raises(ValueError, match="whose indices fit its shape"):
        clone(classifier).fit(bad, Y)
    model = clone(classifier).fit(matrix(), Y)
    for method in ("predict", "decision_function"):
        with pytest.raises(ValueError, match="whose indices fit its shape"):
            getattr(model, method)(bad)
    if hasattr(model, "partial_fit"):
        with pytest.raises(ValueError, match="whose indices fit its shape"):
            clone(classifier).partial_fit(matrix(), Y, classes=[0, 1]).partial_fit(bad, Y)


def test_parts_refuse_them():
    bad = matrix("csc")
    bad.indices[3] = 10**8
    with pytest.raises((DataError, ValueError), match="whose indices fit its shape"):
        LDMClassifier().fit(Partitions.from_arrays(bad, Y, rows_per_partition=20))


@pytest.mark.parametrize("disorder", ["unsorted", "twice"])
def test_what_a_matrix_remembers_of_its_order_is_not_believed(disorder):
    X = matrix()
    assert X.has_canonical_format  # and now it remembers that
    for begin, end in zip(X.indptr, X.indptr[1:]):
        if disorder == "unsorted":
            X.indices[begin:end] = X.indices[begin:end][::-1].copy()
        else:
            X.indices[begin:end] = X.indices[begin]
    assert not is_canonical(X)
    dense = np.zeros(X.shape)
    np.add.at(dense, (np.repeat(np.arange(60), np.diff(X.indptr)), X.indices), X.data)
    for model in (LDMClassifier(tol=1e-9), PUMMAClassifier(soft_margin=1.0, shuffle=False)):
        expected = clone(model).fit(dense, Y)
        assert clone(model).fit(X, Y).coef_ == pytest.approx(expected.coef_, rel=1e-6, abs=1e-9)
    learner = PUMMAClassifier(soft_margin=1.0)
    expected = clone(learner).partial_fit(dense, Y, classes=[0, 1]).partial_fit(dense, Y)
    found = clone(learner).partial_fit(X, Y, classes=[0, 1]).partial_fit(X, Y)
    assert found.coef_ == pytest.approx(expected.coef_, rel=1e-9)
