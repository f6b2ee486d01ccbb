"""Tables of polars and pyarrow give the models that the same rows of pandas give."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from margindist import LDMClassifier, LDMClassifierCV, LSSVMClassifier, ODMClassifier, PUMMAClassifier
from margindist.compare.data import find_data
from margindist.datasets import DataError, Partitions, encoder, encoding_notes, tidy
from margindist.margins import margins

pl = pytest.importorskip("polars")
pytest.importorskip("narwhals")

ROWS = 90
NUMBERS = np.random.default_rng(0).normal(size=(ROWS, 4))
LABELS = np.where(NUMBERS[:, 0] > 0.1, "yes", "no")
FRAME = pd.DataFrame(NUMBERS, columns=["one", "two", "three", "four"])


def polars(frame):
    return pl.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def arrow(frame):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({name: frame[name].to_numpy() for name in frame.columns})


def mixed():
    """Return a table of polars with gaps in columns of every kind."""
    rng = np.random.default_rng(1)

    def drawn(values, dtype=None):
        picked = [values[k] for k in rng.integers(0, len(values), ROWS)]
        return pl.Series(picked, dtype=dtype)

    return pl.DataFrame(
        {
            "height": NUMBERS[:, 0],
            "count": drawn([1, 2, None], pl.Int64),
            "single": drawn([1.5, None], pl.Float32),
            "colour": drawn(["red", "blue", None], pl.String),
            "kind": drawn(["b", "a", None], pl.Categorical),
            "rank": drawn(["low", "high", None], pl.Enum(["low", "high"])),
            "flag": drawn([True, False], pl.Boolean),
            "doubtful": drawn([True, None, False], pl.Boolean),
        }
    )


@pytest.mark.parametrize("table", [polars, arrow])
@pytest.mark.parametrize(
    "classifier",
    [
        LDMClassifier(),
        ODMClassifier(kernel="rbf"),
        LSSVMClassifier(),
        LDMClassifierCV(Cs=[1], lambda1s=[0.1], lambda2s=[0.1]),
        PUMMAClassifier(soft_margin=1.0, random_state=0),
    ],
    ids=repr,
)
def test_models_and_predictions_are_those_of_pandas(classifier, table):
    expected = classifier.fit(FRAME, LABELS)
    scores, right = expected.decision_function(FRAME), expected.score(FRAME, LABELS)
    z = margins(expected, FRAME, LABELS)
    X = table(FRAME)
    found = classifier.fit(X, LABELS)
    assert found.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert np.array_equal(found.decision_function(X), scores) and np.array_equal(found.decision_function(FRAME), scores)
    assert found.score(X, LABELS) == right and np.array_equal(margins(found, X, LABELS), z)


def test_labels_and_weights_may_be_series():
    weights = np.arange(ROWS) % 3.0
    expected = LDMClassifier().fit(FRAME, LABELS, weights)
    found = LDMClassifier().fit(polars(FRAME), pl.Series(LABELS), pl.Series(weights))
    assert np.array_equal(found.coef_, expected.coef_) and found.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("table", [polars, arrow])
def test_other_columns_are_refused(table):
    model = LDMClassifier().fit(table(FRAME), LABELS)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table(FRAME[["two", "one", "three", "four"]]))


def test_a_column_of_text_is_named():
    X = polars(FRAME).with_columns(pl.lit("x").alias("three"))
    for frame in (X, X.to_arrow(), X.to_pandas()):
        with pytest.raises(
            ValueError, match=r"^LDMClassifier: expected columns of numbers, but 'three' has others; .*"
        ):
            LDMClassifier().fit(frame, LABELS)


def test_lazy_tables_are_to_be_collected():
    with pytest.raises(TypeError, match=r"^LDMClassifier: expected rows in memory, got a LazyFrame; call its collect"):
        LDMClassifier().fit(polars(FRAME).lazy(), LABELS)
    with pytest.raises(DataError, match=r"got a polars LazyFrame; .* collect\(\)"):
        encoder(polars(FRAME).lazy())


@pytest.mark.parametrize("convert", [pl.DataFrame.clone, pl.DataFrame.to_arrow])
def test_the_encoder_makes_the_numbers_that_it_makes_of_pandas(convert):
    X, as_pandas = convert(mixed()), tidy(mixed())
    expected = encoder(as_pandas).fit(as_pandas)
    found = encoder(X).fit(X)
    assert np.array_equal(found.transform(X), expected.transform(as_pandas))
    assert np.array_equal(found.transform(as_pandas), expected.transform(as_pandas))
    assert found.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
    assert encoding_notes(X) == encoding_notes(as_pandas)
    model = make_pipeline(encoder(X), LDMClassifier()).fit(X, LABELS)
    same = make_pipeline(encoder(as_pandas), LDMClassifier()).fit(as_pandas, LABELS)
    assert np.array_equal(model[-1].coef_, same[-1].coef_)
    assert np.array_equal(model.predict(X), same.predict(as_pandas))


def test_rows_with_fewer_kinds_of_values_are_encoded_alike():
    X = mixed()
    fitted = encoder(X).fit(X)
    together = fitted.transform(X)
    for i in range(ROWS):
        assert np.array_equal(fitted.transform(X[i : i + 1]), together[i : i + 1])


def test_the_encoder_gives_tables_of_polars():
    X = mixed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_pipeline(encoder(X), LDMClassifier()).set_output(transform="polars").fit(X, LABELS)
        encoded = model[0].transform(X)
        predicted = model.predict(X)
    assert isinstance(encoded, pl.DataFrame) and encoded.columns == model[0].get_feature_names_out().tolist()
    assert model[-1].feature_names_in_.tolist() == encoded.columns
    assert np.array_equal(predicted, make_pipeline(encoder(X), LDMClassifier()).fit(X, LABELS).predict(X))


def test_parts_may_be_made_of_them():
    X = mixed()
    rows = Partitions.from_arrays(X, LABELS, rows_per_partition=40).encoded()
    whole = encoder(X).fit_transform(X)
    assert LDMClassifier(tol=1e-9).fit(rows).coef_ == pytest.approx(
        LDMClassifier(tol=1e-9).fit(whole, LABELS).coef_, abs=1e-5
    )


@pytest.mark.parametrize("convert", [pl.DataFrame.clone, pl.DataFrame.to_arrow])
def test_comparisons_take_them(convert):
    X = mixed()
    expected, _ = find_data(tidy(X), LABELS)
    found, _ = find_data(convert(X), LABELS)
    with_target, _ = find_data(convert(X.with_columns(pl.Series("label", LABELS))), target="label")
    assert found.checksum == expected.checksum == with_target.checksum
    assert found.feature_names == with_target.feature_names == tuple(X.columns)
