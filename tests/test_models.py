"""Model files: what comes back is what was stored, and nothing else ever comes out of a file."""

import contextlib
import io
import json
import os
import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

import margindist
from benchmarks.fuzz_models import array_nodes, fuzz, pack, unpack
from margindist import (
    LDMClassifier,
    LSSVMClassifier,
    LSSVMClassifierCV,
    MAMClassifier,
    ODMClassifier,
    PUMMAClassifier,
)
from margindist.compare import train
from margindist.datasets import encoder, tidy
from margindist.models import FORMAT, ModelFileError, _Reader, _Writer, load_model, read_metadata, save_model

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*negative eigenvalues:UserWarning"
)

IRIS, SPECIES = load_iris(return_X_y=True)
X, Y = MinMaxScaler().fit_transform(IRIS)[::2], SPECIES[::2]
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
TWO = Y < 2
CLASSIFIERS = [name for name in margindist.__all__ if name.endswith("Classifier")]


def make(name, kernel):
    cls = getattr(margindist, name)
    if name == "ECOCClassifier":
        return cls(LSSVMClassifier(kernel=kernel))
    return cls(kernel=kernel) if "kernel" in cls().get_params() else cls()


def roundtrip(model, tmp_path, **metadata):
    path = tmp_path / "a.model"
    save_model(model, path, **metadata)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.model"]
    return load_model(path)


def assert_same(again, model, rows):
    """Compare scores and labels bit for bit, and every attribute that is an array or a number."""
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    labels, expected = again.predict(rows), model.predict(rows)
    assert labels.dtype == expected.dtype
    np.testing.assert_array_equal(labels, expected)
    assert type(again) is type(model)
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()


# ---------------------------------------------------------------------- there and back


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_comes_back(name, kernel, tmp_path):
    dense = X @ X.T if kernel == "precomputed" else X
    model = make(name, kernel).fit(dense[TWO][:, TWO] if kernel == "precomputed" else dense[TWO], Y[TWO])
    assert_same(roundtrip(model, tmp_path), model, dense[:, TWO] if kernel == "precomputed" else dense)
    forms = [dense] if kernel == "precomputed" else [dense, sp.csr_matrix(dense)]
    if name in ("LSSVMClassifier", "SVRClassifier") and kernel != "precomputed":
        forms += [dense.astype(np.float32), sp.csr_array(dense)]
    for rows in forms:
        model = make(name, kernel).fit(rows, NAMES)
        again = roundtrip(model, tmp_path)
        assert_same(again, model, rows)
        assert not {"_memory", "_stream", "history_", "multipliers_", "n_iter_"} & vars(again).keys()


def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(X.copy(), columns=["a", "b", "c", "d"])
    table["colour"] = rng.choice(["red", "green", "blue"], len(X))
    table["size"] = rng.choice(["s", "m", "l", None], len(X))
    table.loc[3:9, "a"] = np.nan
    return table


def column_transformer(one_hot):
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler()), ["a", "b"]),
            ("words", make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot), ["colour", "size"]),
            ("kept", "passthrough", ["c"]),
        ],
        remainder=StandardScaler(),
    )


@pytest.mark.parametrize(
    "one_hot",
    [
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(drop="first", sparse_output=False, dtype=np.float32),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(min_frequency=0.3, handle_unknown="infrequent_if_exist"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ],
    ids=["plain", "drop", "drop if binary", "infrequent", "ordinal"],
)
def test_pipelines_of_data_frames_come_back(one_hot, tmp_path):
    table = frame()
    model = make_pipeline(column_transformer(one_hot), LDMClassifier(kernel="rbf")).fit(table, NAMES)
    again = roundtrip(model, tmp_path)
    assert_same(again, model, table)
    names = model[:-1].get_feature_names_out()
    np.testing.assert_array_equal(again[:-1].get_feature_names_out(), names)
    assert read_metadata(tmp_path / "a.model").feature_names == tuple(table.columns)
    with pytest.raises(ValueError, match="columns are missing"):
        again.predict(table.drop(columns="colour"))


def test_the_encoder_of_the_data_sets_comes_back(tmp_path):
    table = tidy(frame()).assign(flag=X[:, 0] > 0.5, town=[f"town {k % 60}" for k in range(len(X))])
    model = make_pipeline(encoder(table), LSSVMClassifier()).fit(table, NAMES)
    assert model[:-1].transform(table).shape[1] == 4 + 3 + 3 + 50 + 2
    again = roundtrip(model, tmp_path)
    table.loc[5, "town"] = "unknown"
    assert_same(again, model, table)


def test_columns_chosen_by_selector_index_or_slice_come_back(tmp_path):
    table = frame()
    choices = [make_column_selector(dtype_include=np.number), table.columns[:4], slice("a", "d"), ["a", "b"]]
    for columns in choices:
        chooser = ColumnTransformer([("numbers", SimpleImputer(), columns)])
        model = make_pipeline(chooser, LSSVMClassifier()).fit(table, Y)
        assert_same(roundtrip(model, tmp_path), model, table)


@pytest.mark.parametrize(
    "model",
    [
        LinearSVC(),
        LogisticRegression(),
        RidgeClassifier(),
        SVC(),
        SVC(kernel="poly", decision_function_shape="ovo"),
        OneVsRestClassifier(LSSVMClassifier()),
        OneVsOneClassifier(LinearSVC()),
        make_pipeline(StandardScaler(with_mean=False), Normalizer(), MaxAbsScaler(), ODMClassifier()),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_scikit_learn_comes_back(model, form, tmp_path):
    rows = form(X)
    for labels in (Y, NAMES, np.where(TWO, "b", "a")):
        model = sklearn.base.clone(model).fit(rows, labels)
        assert_same(roundtrip(model, tmp_path), model, rows)
    if isinstance(model, LogisticRegression):
        np.testing.assert_array_equal(roundtrip(model, tmp_path).predict_proba(rows), model.predict_proba(rows))


def test_svc_with_precomputed_kernel_comes_back(tmp_path):
    model = SVC(kernel="precomputed").fit(X @ X.T, Y)
    assert_same(roundtrip(model, tmp_path), model, X @ X.T)


@pytest.mark.filterwarnings("ignore:.*probability:FutureWarning")
def test_svc_with_probabilities_comes_back(tmp_path):
    model = SVC(probability=True, random_state=0).fit(X, Y)
    again = roundtrip(model, tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_label_transformers_come_back(tmp_path):
    again = roundtrip(LabelEncoder().fit(NAMES), tmp_path)
    np.testing.assert_array_equal(again.transform(NAMES), Y)
    binarizer = LabelBinarizer().fit(NAMES)
    np.testing.assert_array_equal(roundtrip(binarizer, tmp_path).transform(NAMES), binarizer.transform(NAMES))


def test_of_a_search_the_best_model_is_stored(tmp_path):
    search = GridSearchCV(Pipeline([("s", MinMaxScaler()), ("c", LSSVMClassifier())]), {"c__C": [0.1, 10.0]}, cv=3)
    again = roundtrip(search.fit(X, NAMES), tmp_path)
    assert again.get_params()["c__C"] == search.best_params_["c__C"]
    assert_same(again, search.best_estimator_, X)
    inside = make_pipeline(MinMaxScaler(), GridSearchCV(LSSVMClassifier(), {"C": [0.1, 10.0]}, cv=3)).fit(X, Y)
    again = roundtrip(inside, tmp_path)
    assert isinstance(again[-1], LSSVMClassifier)
    np.testing.assert_array_equal(again.decision_function(X), inside.decision_function(X))


def test_of_our_own_searches_the_best_model_is_stored(tmp_path):
    search = make_pipeline(MinMaxScaler(), LSSVMClassifierCV(Cs=[0.1, 10.0], cv=3)).fit(X, NAMES)
    again = roundtrip(search, tmp_path)
    assert isinstance(again[-1], LSSVMClassifier) and search[-1].best_params_["C"] == again[-1].C
    np.testing.assert_array_equal(again.decision_function(X), search.decision_function(X))


def test_values_of_every_kind_come_back():
    values = {
        "nan": float("nan"),
        "inf": [np.inf, -np.inf, -0.0, 1e-320, 0.1],
        "tuple": (1, (2, None), "three", True),
        "dict": {1: "a", "b": 2.5, False: None},
        "numpy": (np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("x"), np.float64("nan")),
        "type": (np.float32, float, object),
        "objects": np.array(["a", None, 1.5, float("nan")], dtype=object),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 3)),
        "times": np.array(["2020-01-01"], dtype="datetime64[D]"),
        "csr": sp.csr_array(X),
        "slice": slice(1, None, 2),
        "text": "ends with \0 and has \ud800 and ü",
    }
    writer = _Writer()
    node = json.loads(json.dumps(writer.node(values, "values")))
    body = b"".join(array.tobytes() for array in writer.arrays)
    for value, found in zip(values.values(), _Reader(io.BytesIO(body), len(body)).value(node).values(), strict=True):
        assert type(found) is type(value)
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype and found.flags.f_contiguous == value.flags.f_contiguous
            assert found.flags.writeable
        if sp.issparse(value):
            found, value = found.toarray(), value.toarray()
        assert repr(found) == repr(value)


def test_class_weight_by_label_comes_back_and_random_state_is_forgotten(tmp_path):
    model = LDMClassifier(class_weight={"setosa": 2.0}, random_state=np.random.RandomState(0)).fit(X, NAMES)
    again = roundtrip(model, tmp_path)
    assert again.class_weight == {"setosa": 2.0} and again.random_state is None
    assert roundtrip(LDMClassifier(random_state=7).fit(X, Y), tmp_path).random_state == 7


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("name", ["PUMMAClassifier", "ROMMAClassifier", "ALMAClassifier", "MICRAClassifier"])
def test_online_learners_predict_but_do_not_go_on_learning(name, kernel, tmp_path):
    model = make(name, kernel).set_params(gamma="auto", random_state=0).partial_fit(X[:40], Y[:40], classes=[0, 1, 2])
    again = roundtrip(model, tmp_path)
    assert_same(again, model, X)
    with pytest.raises(ValueError, match="which a model file does not keep; fit a clone"):
        again.partial_fit(X[40:], Y[40:])
    assert_same(again, model, X)
    assert_same(again.fit(X, Y).partial_fit(X, Y), model.fit(X, Y).partial_fit(X, Y), X)


def test_stochastic_gradients_predict_but_do_not_go_on(tmp_path):
    model = LDMClassifier(solver="asgd", random_state=0).partial_fit(X[:40], Y[:40], classes=[0, 1, 2])
    again = roundtrip(model, tmp_path)
    assert_same(again, model, X)
    with pytest.raises(ValueError, match="comes from a model file, which keep nothing to go on from"):
        again.partial_fit(X[40:], Y[40:])


def test_scalers_keep_what_they_have_seen(tmp_path):
    for scaler in (StandardScaler(), MinMaxScaler(), MaxAbsScaler()):
        again = roundtrip(scaler.fit(IRIS[:40]), tmp_path)
        np.testing.assert_array_equal(
            again.partial_fit(IRIS[40:]).transform(IRIS), scaler.partial_fit(IRIS[40:]).transform(IRIS)
        )


def test_what_concerns_the_machine_is_set_back(tmp_path, tmp_path_factory):
    model = Pipeline([("c", LSSVMClassifier(n_jobs=2))], memory=str(tmp_path_factory.mktemp("cache"))).fit(X, Y)
    again = roundtrip(model, tmp_path)
    assert again.memory is None and again["c"].n_jobs is None


def test_loaded_models_can_be_cloned_and_fitted(tmp_path):
    model = make_pipeline(MinMaxScaler(), MAMClassifier(kernel="rbf")).fit(X, Y)
    again = sklearn.base.clone(roundtrip(model, tmp_path)).fit(X, Y)
    assert_same(again, model, X)


# ---------------------------------------------------------------------- columns by name


def test_a_model_of_a_table_of_numbers_finds_its_columns_again(tmp_path):
    table = load_iris(as_frame=True).data
    table.assign(species=SPECIES).to_csv(tmp_path / "iris.csv", index=False)
    trained = train(tmp_path / "iris.csv", target="species", method="lssvm", parameters={"C": 1.0})
    (tmp_path / "models").mkdir()
    again = roundtrip(trained.model, tmp_path / "models", feature_names=trained.dataset.feature_names)
    backwards = table[table.columns[::-1]]
    for model in (trained.model, again):
        np.testing.assert_array_equal(model.decision_function(backwards), model.decision_function(table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arrays have no names
        np.testing.assert_array_equal(again.decision_function(table.to_numpy()), again.decision_function(table))
    with pytest.raises(ValueError, match="columns are missing"):
        again.predict(table.drop(columns="sepal length (cm)"))


@pytest.mark.parametrize(
    "model",
    [
        LSSVMClassifier(),
        make_pipeline(make_pipeline(SimpleImputer(), MinMaxScaler()), LSSVMClassifier()),
        OneVsRestClassifier(LSSVMClassifier()),
        OneVsOneClassifier(LSSVMClassifier()),
    ],
    ids=["bare", "pipeline", "one-vs-rest", "one-vs-one"],
)
def test_names_are_checked_whether_the_model_or_the_file_has_them(model, tmp_path):
    names = ["a", "b", "c", "d"]
    table = pd.DataFrame(X.copy(), columns=names)
    loaded = [
        roundtrip(sklearn.base.clone(model).fit(table, Y), tmp_path),
        roundtrip(sklearn.base.clone(model).fit(X, Y), tmp_path, feature_names=names),
    ]
    for again in loaded:
        assert list(again.feature_names_in_) == names
        np.testing.assert_array_equal(again.predict(table), model.fit(table, Y).predict(table))
        with pytest.raises(ValueError, match="feature names should match"):
            again.predict(table[names[::-1]])
    with pytest.raises(ModelFileError, match="not those of the columns the model has seen"):
        save_model(loaded[0], tmp_path / "a.model", feature_names=names[::-1])


def test_names_of_the_file_reach_the_steps_of_a_column_transformer(tmp_path):
    chooser = ColumnTransformer([("first", MinMaxScaler(), [0, 2]), ("rest", StandardScaler(), [1, 3])])
    model = make_pipeline(chooser, LSSVMClassifier()).fit(X, Y)
    again = roundtrip(model, tmp_path, feature_names=["a", "b", "c", "d"])
    table = pd.DataFrame(X.copy(), columns=["a", "b", "c", "d"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(again.decision_function(table[["d", "c", "b", "a"]]), model.decision_function(X))


# ---------------------------------------------------------------------- the file


def test_metadata(tmp_path):
    model = LSSVMClassifier().fit(X, NAMES)
    roundtrip(
        model,
        tmp_path,
        feature_names=["a", "b", "c", "d"],
        target_name="species",
        data_name="iris",
        data_checksum="abc",
        notes=["Every second row."],
    )
    about = read_metadata(tmp_path / "a.model")
    assert about.model == "LSSVMClassifier" and about.classes == ("setosa", "versicolor", "virginica")
    assert about.feature_names == ("a", "b", "c", "d") and about.target_name == "species"
    assert (about.data_name, about.data_checksum, about.notes) == ("iris", "abc", ("Every second row.",))
    assert about.format == FORMAT and about.versions["scikit-learn"] == sklearn.__version__
    assert about.versions["margindist"] == margindist.__version__
    roundtrip(make_pipeline(MinMaxScaler(), model).fit(X, Y), tmp_path)
    assert read_metadata(tmp_path / "a.model").model == "Pipeline(MinMaxScaler, LSSVMClassifier)"
    assert read_metadata(tmp_path / "a.model").feature_names is None


def test_same_model_gives_the_same_bytes(tmp_path):
    for name in "ab":
        save_model(LDMClassifier(kernel="rbf").fit(X, Y), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    model = LSSVMClassifier().fit(X, Y)
    path = tmp_path / "a.model"
    save_model(model, path)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(LDMClassifier().fit(X, Y), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.model"]


def test_what_cannot_be_stored_is_named(tmp_path):
    def cases():
        yield RandomForestClassifier(2).fit(X, Y), "RandomForestClassifier"
        yield make_pipeline(MinMaxScaler(), RandomForestClassifier(2)).fit(X, Y), "Pipeline.steps.*RandomForest"
        yield LSSVMClassifier(kernel=lambda a, b: a @ b.T).fit(X, Y), "LSSVMClassifier.kernel is a function"
        yield make_pipeline(FunctionTransformer(np.abs), LSSVMClassifier()).fit(X, Y), "FunctionTransformer.func"
        yield "model", "expected a fitted classifier, got an object of str"
        loop = margindist.ECOCClassifier(LSSVMClassifier()).fit(X, Y)
        loop.estimator = loop
        yield loop, "contains itself"
        odd = LSSVMClassifier().fit(X, Y)
        yield odd.set_params(class_weight=np.ma.array([1.0], mask=[True])), "LSSVMClassifier.class_weight is a Masked"
        yield LSSVMClassifier().fit(X, Y).set_params(class_weight={0: 10**30}), "integer of more than 20 digits"
        odd = LSSVMClassifier().fit(X, Y)
        odd.coef_ = odd.coef_ * np.nan
        yield odd, "LSSVMClassifier.coef_ is of the wrong type or shape, or out of range"

    for model, message in cases():
        with pytest.raises(ModelFileError, match=message):
            save_model(model, tmp_path / "a.model")
    with pytest.raises(ModelFileError, match="has 4 features, got 2 feature_names"):
        save_model(LSSVMClassifier().fit(X, Y), tmp_path / "a.model", feature_names=["a", "b"])
    with pytest.raises(sklearn.exceptions.NotFittedError):
        save_model(LSSVMClassifier(), tmp_path / "a.model")
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_the_same_name_is_not_taken_for_ours(tmp_path):
    class LDMClassifier(LSSVMClassifier):
        pass

    with pytest.raises(ModelFileError, match=r"tests\.test_models\.LDMClassifier|test_models\.LDMClassifier"):
        save_model(LDMClassifier().fit(X, Y), tmp_path / "a.model")


# ---------------------------------------------------------------------- files from strangers


def rewrite(path, change):
    """Change header and body in place; the checksum is made to fit again, as a forger would."""
    header, body = unpack(path.read_bytes())
    changed = change(header)
    path.write_bytes(pack(header, body if changed is None else changed))


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "a.model"
    save_model(make_pipeline(MinMaxScaler(), LDMClassifier(kernel="rbf")).fit(X, NAMES), path)
    return path


def refusal(path):
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith(f"The model file {path.name} cannot be loaded: ") and text.endswith(".")
    assert "\n" not in text
    return text


def test_what_is_no_model_file_is_refused(tmp_path):
    path = tmp_path / "x"
    for data in (b"", b"hello", b"\x80\x04" + b"x" * 100, pickle.dumps(LSSVMClassifier())):
        path.write_bytes(data)
        assert "not a model file" in refusal(path)
    for header in (b"[]", b'{"kind": "other"}', b'{"format": 1}'):
        path.write_bytes(pack(header, b""))
        assert "no format number" in refusal(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none")


def test_the_format_of_the_first_release_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("model.json", '{"kind": "margindist model", "format": 1}')
    assert "the format of margindist 0.1, which is no longer read; save the model again" in refusal(tmp_path / "old")


def test_truncated_and_damaged_files_are_refused(stored):
    whole = stored.read_bytes()
    for length in (20, len(whole) // 2, len(whole) - 1):
        stored.write_bytes(whole[:length])
        assert "truncated" in refusal(stored)
    for position in (40, len(whole) // 2, len(whole) - 1):
        stored.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert "damaged" in refusal(stored)
    stored.write_bytes(pack(*unpack(whole)) + b"more")
    assert "checksum does not fit" in refusal(stored)
    header, body = unpack(whole)
    stored.write_bytes(pack(header, body + b"more"))
    assert "more bytes than its arrays" in refusal(stored)


def test_a_newer_format_is_refused_and_another_version_warns(stored):
    rewrite(stored, lambda header: header["versions"].update({"scikit-learn": "0.1"}))
    with pytest.warns(UserWarning, match=r"written with scikit-learn 0\.1, this is"):
        load_model(stored)
    rewrite(stored, lambda header: header.update(format=FORMAT + 1))
    assert f"format {FORMAT + 1}, made by a newer margindist" in refusal(stored)
    with pytest.raises(ModelFileError, match="newer margindist"):
        read_metadata(stored)


def leaf(header):
    """Return the node of the classifier in the stored pipeline."""
    return header["tree"]["parameters"]["steps"][1]["tuple"][1]


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (b" " * 63_000_000, "more than 16,000,000 bytes"),
        (b"[" + b"[]," * 300_000 + b"1]", "more than 100,000 lists and objects"),
        (b"[" + b"1," * 1_000_001 + b"1]", "more than 500,000 values"),
        (b"[" * 1_000_000, "more than 100,000 lists"),
        (b"[" * 1_000 + b"]" * 1_000, "nested more than 100 deep"),
        (b'{"format": ' + b"1" * 4_000 + b"}", "integer of more than 20 digits"),
        (b'["' + b'\\"[' * 1_000_000, "is damaged"),
    ],
    ids=["bytes", "containers", "values", "open", "depth", "digits", "text without an end"],
)
def test_headers_are_bounded_before_they_are_parsed(header, complaint, tmp_path):
    path = tmp_path / "a.model"
    path.write_bytes(pack(header, b""))
    assert complaint in refusal(path)
    with pytest.raises(ModelFileError, match=complaint):
        read_metadata(path)


def test_keys_cannot_be_made_to_collide(stored):
    """Equal hashes need integers of many digits."""
    keys = [[k * (2**61 - 1), 0] for k in range(20_000)]
    rewrite(stored, lambda header: leaf(header)["parameters"].update(class_weight={"dict": keys}))
    assert "a parameter out of its range" in refusal(stored) or "digits" in refusal(stored)
    keys = [[k * 2 ** (61 * 8), 0] for k in range(20_000)]
    rewrite(stored, lambda header: leaf(header)["parameters"].update(class_weight={"dict": keys}))
    assert "integer of more than 20 digits" in refusal(stored)


def test_objects_are_counted(stored):
    parts = [{"class": "Normalizer", "parameters": {}}] * 10_001
    rewrite(stored, lambda header: header["tree"]["parameters"].update(steps=parts))
    assert "more than 10,000 objects" in refusal(stored)


def test_what_is_too_large_for_a_file_is_refused_when_saved(tmp_path):
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LSSVMClassifier()).fit(X, Y)
    model[0].categories_ = [np.array(["x"] * 300_000, dtype=object)] * 4
    with pytest.raises(ModelFileError, match="save_model: the header has more than 500,000 values"):
        save_model(model, tmp_path / "a.model")


def test_arrays_larger_than_the_file_are_refused(stored):
    def change(header):
        leaf(header)["fitted"]["dual_coef_"]["shape"] = [1, 1 << 38]

    rewrite(stored, change)
    assert "larger than the rest of the file" in refusal(stored)


@pytest.mark.parametrize(
    "name",
    ["os.system", "Popen", "eval", "RandomForestClassifier", "__class__", "LDMClassifier.fit", "_Writer", "", None, 3],
)
def test_classes_outside_the_list_are_refused(stored, name):
    rewrite(stored, lambda header: leaf(header).update({"class": name}))
    assert "not among those a model file may hold" in refusal(stored)


@pytest.mark.parametrize(
    "name", ["__class__", "__dict__", "__reduce__", "fit", "decision_function", "_skl_callbacks", "n_iter_", "a b", ""]
)
def test_attributes_and_parameters_that_prediction_does_not_need_are_refused(stored, name):
    original = stored.read_bytes()
    rewrite(stored, lambda header: leaf(header)["fitted"].update({name: 1}))
    assert "which prediction does not need" in refusal(stored)
    stored.write_bytes(original)
    rewrite(stored, lambda header: leaf(header)["parameters"].update({name: 1}))
    assert "has no parameter" in refusal(stored)


@pytest.mark.parametrize(
    "node",
    [
        {"eval": "1"},
        {},
        {"type": "Popen"},
        {"type": ["float"]},
        {"type": "float"},
        {"float": "x"},
        {"dict": [[1]]},
        {"dict": [[[1], 2]]},
        {"dict": [[{"tuple": [1]}, 2]]},
        {"tuple": 1},
        {"slice": [1, 2, 3, 4]},
        {"array": "O", "shape": [0]},
        {"array": "|V8", "shape": [0]},
        {"array": "<U99999999", "shape": [0]},
        {"array": ["<f8"], "shape": [0]},
        {"array": "<f8", "shape": [-1]},
        {"array": "<f8", "shape": [0, 0, 0]},
        {"objects": [[1]]},
        {"sparse": "coo_matrix", "shape": [1, 1], "parts": []},
        {"sparse": "csr_matrix", "shape": [1, 1], "parts": [[1], [0], [0, 1]]},
        {"class": "Kernel", "parameters": {"name": "rbf", "other": 1}},
        {"class": "Kernel"},
        {"class": "LSSVMClassifier", "parameters": {"C": -1}},
        {"class": "FunctionTransformer", "parameters": {"func": {"type": "str"}}},
    ],
    ids=str,
)
def test_malformed_nodes_are_refused(stored, node):
    rewrite(stored, lambda header: leaf(header)["parameters"].update(class_weight=node))
    refusal(stored)


def forged(model, tmp_path, name, value):
    """Store a model, put another array in the place of one it has, and return the refusal."""
    path = tmp_path / "a.model"
    save_model(model, path)
    header, body = unpack(path.read_bytes())
    for node, start, size in array_nodes(header):
        if node is header["tree"]["fitted"][name]:
            node |= {"array": value.dtype.str, "shape": list(value.shape)}
            path.write_bytes(pack(header, body[:start] + value.tobytes() + body[start + size :]))
    return refusal(path)


def test_arrays_that_would_lead_compiled_code_astray_are_refused(tmp_path):
    dense, sparse = SVC().fit(X, Y), SVC().fit(sp.csr_matrix(X), Y)
    n = len(dense.support_)
    for name, value in [
        ("_n_support", np.array([n, n, n], dtype=np.int32)),
        ("_n_support", np.array([-1, 1, n], dtype=np.int32)),
        ("support_vectors_", dense.support_vectors_[:-1]),
        ("support_vectors_", dense.support_vectors_[:, :2]),
        ("support_vectors_", dense.support_vectors_.astype(np.float32)),
        ("_dual_coef_", np.zeros((1, n))),
        ("_intercept_", np.zeros(1)),
        ("_probA", np.zeros(1)),
        ("support_", np.full(n, -1, dtype=np.int32)),
    ]:
        assert "of the wrong type or shape, or out of range" in forged(dense, tmp_path, name, value)
    path = tmp_path / "a.model"
    for changes in ({"probability": True}, {"kernel": "precomputed"}, {"kernel": "other"}):
        save_model(sparse, path)
        rewrite(path, lambda header, changes=changes: header["tree"]["parameters"].update(changes))
        assert "SVC" in refusal(path)

    codes = OneHotEncoder(max_categories=2).fit([["a"], ["b"], ["c"]])
    for rare in ([3], [-1], [0, 0], []):
        codes._infrequent_indices = [np.array(rare, dtype=np.int64)]
        with contextlib.suppress(ModelFileError):
            save_model(codes, path)
            refusal(path)
    numbers = OneHotEncoder().fit(X)
    numbers.categories_[0] = numbers.categories_[0][::-1]
    with pytest.raises(ModelFileError, match=r"OneHotEncoder\.categories_ is of the wrong type"):
        save_model(numbers, path)

    kernel = LDMClassifier(kernel="rbf").fit(X, Y)
    for name, value in [
        ("dual_coef_", kernel.dual_coef_[:, :3]),
        ("support_vectors_", kernel.support_vectors_[:, :2]),
        ("intercept_", np.zeros(7)),
        ("support_", -1 - kernel.support_),
        ("dual_coef_", np.full_like(kernel.dual_coef_, np.nan)),
    ]:
        assert f"LDMClassifier.{name} is of the wrong type" in forged(kernel, tmp_path, name, value)
    precomputed = LDMClassifier(kernel="precomputed").fit(X @ X.T, Y)
    text = forged(precomputed, tmp_path, "support_", np.full_like(precomputed.support_, len(X)))
    assert "LDMClassifier.support_ is of the wrong type" in text


def test_sparse_matrices_with_entries_outside_are_refused(tmp_path):
    path = tmp_path / "a.model"
    save_model(LSSVMClassifier(kernel="rbf").fit(sp.csr_matrix(X), Y), path)
    header, body = unpack(path.read_bytes())
    parts = header["tree"]["fitted"]["support_vectors_"]["parts"]
    for node, start, size in array_nodes(header):
        for value in (10**6, -1):
            if node is parts[1] or node is parts[2]:
                changed = np.frombuffer(body[start : start + size], node["array"]).copy()
                changed[1] = value
                path.write_bytes(pack(header, body[:start] + changed.tobytes() + body[start + size :]))
                refusal(path)


@pytest.mark.parametrize(
    ("model", "name", "state"),
    [
        (LDMClassifier(solver="asgd"), "_stream", {"v": {"array": "<f8", "shape": [0]}}),
        (PUMMAClassifier(kernel="rbf", gamma=1.0), "_memory", {"owners": {"objects": [10**12, 10**12]}}),
        (PUMMAClassifier(), "_memory", {"slots": {"objects": [-1, -1, -1]}}),
    ],
    ids=["stream", "owners", "slots"],
)
def test_state_of_training_is_refused(model, name, state, tmp_path):
    """Files with it made partial_fit write out of bounds."""
    path = tmp_path / "a.model"
    save_model(sklearn.base.clone(model).partial_fit(X, Y, classes=[0, 1, 2]), path)
    original = path.read_bytes()
    for value in (state, {"dict": list(map(list, state.items()))}):
        path.write_bytes(original)
        rewrite(path, lambda header, value=value: header["tree"]["fitted"].update({name: value}))
        refusal(path)
    path.write_bytes(original)
    with pytest.raises(ValueError, match="model file"):
        load_model(path).partial_fit(X, Y)


def test_labels_come_from_one_place(tmp_path):
    model = OneVsRestClassifier(LSSVMClassifier()).fit(X, NAMES)
    expected = model.predict(X)
    model.label_binarizer_.classes_ = np.array(["a", "b"], dtype=object)
    np.testing.assert_array_equal(roundtrip(model, tmp_path).predict(X), expected)


def test_parts_that_do_not_fit_together_are_refused(stored):
    """Each of them is what its schema says, but they cannot predict."""

    def change(header):
        header["tree"]["parameters"]["steps"].pop(0)
        header["tree"]["parameters"]["steps"].append({"tuple": ["codes", {
            "class": "OneHotEncoder", "parameters": {}, "fitted": {
                "n_features_in_": 1, "categories_": [{"objects": ["a"]}]}}]})  # fmt: skip
        header["tree"]["parameters"]["steps"].reverse()
        return unpack(original)[1][5 * 4 * 8 :]  # without the arrays of the scaler

    original = stored.read_bytes()
    rewrite(stored, change)
    assert "its parts do not fit together, so that it cannot predict" in refusal(stored)


# ---------------------------------------------------------------------- fuzzing

FUZZ = settings(
    max_examples=150, deadline=60_000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def load_or_refuse(path):
    """Load; the only way to fail is the one error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (load_model, read_metadata):
            try:
                function(path)
            except ModelFileError as error:
                assert "\n" not in str(error)


@FUZZ
@given(header=st.binary(max_size=300), body=st.binary(max_size=20), packed=st.booleans())
def test_random_bytes(header, body, packed, tmp_path):
    path = tmp_path / "fuzz"
    path.write_bytes(pack(header, body) if packed else header)
    load_or_refuse(path)


NAMES_TO_TRY = st.sampled_from(
    ["__class__", "__reduce__", "os.system", "class", "parameters", "fitted", "array", "fit", "steps", "classes_",
     "kernel", "coef_", "_memory", "support_", "n_features_in_", "LDMClassifier", "Pipeline", "SVC", "OneHotEncoder",
     "Kernel", "sparse", "csr_matrix", "objects", "type", "<f8", "rbf", "precomputed"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES_TO_TRY
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES_TO_TRY | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@FUZZ
@given(tree=TREES, about=TREES, versions=TREES)
def test_invented_headers(tree, about, versions, tmp_path):
    header = {"format": FORMAT, "tree": tree, "about": about, "versions": versions}
    (tmp_path / "fuzz").write_bytes(pack(header, b""))
    load_or_refuse(tmp_path / "fuzz")


def test_mutants_are_refused_or_predict(tmp_path):
    """The long version is ``python -m benchmarks.fuzz_models``."""
    outcomes, failures, _ = fuzz(400, 0, tmp_path)
    assert not failures, "\n".join(failures)
    assert outcomes["refused"] > 200 and outcomes["predicts"] > 50
