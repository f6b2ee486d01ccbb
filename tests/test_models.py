"""Model files: what comes back is what was stored, and nothing else ever comes out of a file."""

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
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
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
from benchmarks.fuzz_models import attributes, fuzz, nodes, pack, unpack
from margindist import (
    LDMClassifier,
    LSSVMClassifier,
    LSSVMClassifierCV,
    MAMClassifier,
    ODMClassifier,
)
from margindist.compare import train
from margindist.datasets import encoder, tidy
from margindist.models import FORMAT, ModelFileError, load_model, read_metadata, save_model

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


@pytest.mark.parametrize(
    "labels",
    [
        NAMES.astype(str),
        NAMES,
        Y.astype(np.int8),
        Y > 0,
        Y * 2.0,
        np.array(["\0 ends", "ü", "\ud800"], dtype=object)[Y],
    ],
    ids=["texts", "objects", "bytes", "flags", "numbers", "odd texts"],
)
def test_labels_of_every_kind_come_back(labels, tmp_path):
    model = LSSVMClassifier().fit(X, labels)
    again = roundtrip(model, tmp_path)
    assert_same(again, model, X)
    assert again.classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibrated_classifiers_come_back(method, tmp_path):
    model = CalibratedClassifierCV(LSSVMClassifier(), method=method, ensemble=False, cv=StratifiedKFold(3)).fit(
        X, NAMES
    )
    again = roundtrip(model, tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_plain_data_are_kept_beside_the_model(tmp_path):
    about = {"dates": {"seen": "day first"}, "per cent": ["rate", "share"], "decimal": ",", "rows": 3, "none": None}
    roundtrip(LSSVMClassifier().fit(X, Y), tmp_path, about=about)
    assert read_metadata(tmp_path / "a.model").about == about


def test_skops_reads_the_model_too(tmp_path):
    model = LSSVMClassifier(kernel="rbf").fit(X, Y)
    save_model(model, tmp_path / "a.model")
    trusted = skops.io.get_untrusted_types(file=tmp_path / "a.model")
    again = skops.io.load(tmp_path / "a.model", trusted=trusted)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


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


def test_names_that_are_given_are_those_the_model_has_seen(tmp_path):
    names = ["a", "b", "c", "d"]
    table = pd.DataFrame(X.copy(), columns=names)
    again = roundtrip(LSSVMClassifier().fit(table, Y), tmp_path)
    assert list(again.feature_names_in_) == names
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(table[names[::-1]])
    with pytest.raises(ModelFileError, match="not those of the columns the model has seen"):
        save_model(again, tmp_path / "a.model", feature_names=names[::-1])


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
        yield LSSVMClassifier(kernel=lambda a, b: a @ b.T).fit(X, Y), "LSSVMClassifier.kernel.*kernel='precomputed'"
        yield make_pipeline(FunctionTransformer(np.abs), LSSVMClassifier()).fit(X, Y), "FunctionTransformer.func"
        yield "model", "expected a fitted classifier, got an object of str"
        loop = margindist.ECOCClassifier(LSSVMClassifier()).fit(X, Y)
        loop.estimator = loop
        yield loop, "contains itself"
        odd = LSSVMClassifier().fit(X, Y)
        yield odd.set_params(class_weight=np.ma.array([1.0], mask=[True])), "it has a MaskedArray"
        yield LSSVMClassifier().fit(X, Y).set_params(class_weight={0: 10**30}), "a number of too many digits"
        yield LSSVMClassifier().fit(X, Y).set_params(class_weight={True: 1.0}), "keys that are no texts or numbers"
        yield LSSVMClassifier().fit(X, Y).set_params(class_weight={1: 1.0, "1": 2.0}), "class_weight has keys"
        odd = LSSVMClassifier().fit(X, Y)
        odd.coef_ = odd.coef_[:, :2]
        yield odd, "LSSVMClassifier.coef_ is of the wrong shape"

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


def rewrite(path, change, *more):
    """Change the schema of a file in place, as a forger would."""
    schema, about, arrays = unpack(path.read_bytes())
    change(schema, *more)
    path.write_bytes(pack(schema, about, arrays))


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


def of_class(schema, name):
    """Return the node of an object."""
    return next(node for node in nodes(schema, "ObjectNode") if node["__class__"] == name)


def test_what_is_no_model_file_is_refused(tmp_path):
    path = tmp_path / "x"
    for data in (b"", b"hello", b"\x80\x04" + b"x" * 100, pickle.dumps(LSSVMClassifier())):
        path.write_bytes(data)
        assert "not a model file" in refusal(path)
    for about in ([], {"kind": "other"}, {"format": 1}):
        path.write_bytes(pack({}, about, {}))
        assert "no format number" in refusal(path)
    skops.io.dump(LSSVMClassifier().fit(X, Y), path)
    assert "not a model file" in refusal(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none")


def test_earlier_formats_are_refused_with_what_to_do(tmp_path):
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("model.json", '{"kind": "margindist model", "format": 1}')
    assert "the format of margindist 0.1, which is no longer read; save the model again" in refusal(tmp_path / "old")
    (tmp_path / "old").write_bytes(b"margindist model\n" + bytes(40) + b"{}")
    text = refusal(tmp_path / "old")
    assert "format 2, which is no longer read; fit the model again, or load the file with the margindist that" in text


def test_truncated_and_damaged_files_are_refused(stored):
    whole = stored.read_bytes()
    for length in (20, len(whole) // 2, len(whole) - 1):
        stored.write_bytes(whole[:length])
        refusal(stored)
    for position in (100, len(whole) // 3, len(whole) // 2):
        stored.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert "damaged" in refusal(stored)


def test_a_newer_format_is_refused_and_another_version_warns(stored):
    schema, about, arrays = unpack(stored.read_bytes())
    about["versions"]["scikit-learn"] = "0.1"
    stored.write_bytes(pack(schema, about, arrays))
    with pytest.warns(UserWarning, match=r"written with scikit-learn 0\.1, this is"):
        load_model(stored)
    stored.write_bytes(pack(schema, about | {"format": FORMAT + 1}, arrays))
    assert f"format {FORMAT + 1}, made by a newer margindist" in refusal(stored)
    with pytest.raises(ModelFileError, match="newer margindist"):
        read_metadata(stored)


def test_nothing_is_larger_than_the_file(stored):
    schema, about, arrays = unpack(stored.read_bytes())
    stored.write_bytes(pack(schema, about, arrays, zipfile.ZIP_DEFLATED))
    assert "more than its size" in refusal(stored)
    zeros, compressed = sp.csr_matrix((1000, 1000)), io.BytesIO()
    save_model(LSSVMClassifier(kernel="rbf").fit(sp.csr_matrix(X), Y), stored)
    schema, about, arrays = unpack(stored.read_bytes())
    sp.save_npz(compressed, zeros)
    for node in nodes(schema, "SparseMatrixNode"):
        arrays[node["file"]] = compressed.getvalue()
    stored.write_bytes(pack(schema, about, arrays))
    assert "more than its size" in refusal(stored)


def test_an_array_stands_for_one_attribute(stored):
    def point_twice(schema):
        first, second, *_ = nodes(schema, "NdArrayNode")
        second["file"] = first["file"]

    rewrite(stored, point_twice)
    assert "an array in two places" in refusal(stored)


def test_objects_within_themselves_do_not_hang(stored):
    """skops looks through lists of lists of lists … once for every way to them."""

    def multiply(schema):
        plain = {"__module__": "builtins", "__class__": "list", "__loader__": "ListNode"}
        inner = {**plain, "content": []}
        for number in range(1, 40):
            stub = {**plain, "content": [], "__id__": number}
            inner = {**plain, "content": [stub | inner, stub], "__id__": number + 1}
        attributes(of_class(schema, "LDMClassifier"))["class_weight"] = inner

    rewrite(stored, multiply)
    assert "in two places" in refusal(stored)


def test_what_is_nested_is_bounded(stored):
    def nest(schema):
        step = of_class(schema, "Pipeline")
        for _ in range(12):
            inner = json.loads(json.dumps(step))
            attributes(step)["steps"]["content"][1]["content"][1] = inner

    rewrite(stored, nest)
    assert "in two places" in refusal(stored) or "within each other" in refusal(stored)
    model = make_pipeline(LSSVMClassifier())
    for _ in range(12):
        model = make_pipeline(model)
    with pytest.raises(ModelFileError, match="more than 10 estimators within each other"):
        save_model(model.fit(X, Y), stored)
    _, about, arrays = unpack(stored.read_bytes())
    deep = b"[" * 100_000 + b"]" * 100_000
    stored.write_bytes(pack(deep, about, arrays))
    assert "damaged (RecursionError)" in refusal(stored)


def test_keys_cannot_be_made_to_collide(stored):
    """Equal hashes need integers of many digits."""
    keys = {str(k * 2 ** (61 * 8)): k for k in range(2_000)}

    def collide(schema):
        node = {"__module__": "builtins", "__class__": "dict", "__loader__": "DictNode"}
        kinds = [{"__module__": "builtins", "__class__": "int", "__loader__": "TypeNode"}] * len(keys)
        node["key_types"] = {"__module__": "builtins", "__class__": "list", "__loader__": "ListNode", "content": kinds}
        one = {"__module__": "builtins", "__class__": "str", "__loader__": "JsonNode", "content": "1"}
        node["content"] = dict.fromkeys(keys, one)
        attributes(of_class(schema, "LDMClassifier"))["class_weight"] = node

    rewrite(stored, collide)
    assert "a number of too many digits" in refusal(stored)


@pytest.mark.parametrize(
    ("loader", "module", "name"),
    [
        ("ObjectNode", "subprocess", "Popen"),
        ("ObjectNode", "sklearn.neighbors", "KNeighborsClassifier"),
        ("ObjectNode", "sklearn.ensemble", "RandomForestClassifier"),
        ("ObjectNode", "sklearn.compose", "make_column_selector"),
        ("ObjectNode", "margindist.models", "LDMClassifier"),
        ("ObjectNode", "os", "LDMClassifier"),
        ("FunctionNode", "numpy", "exp"),
        ("FunctionNode", "builtins", "eval"),
        ("MethodNode", "margindist", "LDMClassifier"),
        ("ConstructorFromReduceNode", "margindist", "LDMClassifier"),
        ("PartialNode", "functools", "partial"),
        ("OperatorFuncNode", "operator", "methodcaller"),
        ("RandomStateNode", "numpy.random", "RandomState"),
        ("TypeNode", "subprocess", "Popen"),
        ("TypeNode", "numpy", "void"),
        ("ListNode", "margindist", "LDMClassifier"),
        ("DictNode", "margindist", "LDMClassifier"),
        ("NdArrayNode", "numpy", "void"),
        ("CachedNode", None, None),
        (["ObjectNode"], "margindist", "LDMClassifier"),
        (None, None, None),
    ],
)
def test_what_is_not_in_the_tables_is_refused(stored, loader, module, name):
    def change(schema):
        of_class(schema, "LDMClassifier").update(__loader__=loader, __module__=module, __class__=name)

    rewrite(stored, change)
    assert "not among the classes a model file may hold" in refusal(stored)


@pytest.mark.parametrize(
    "name", ["__class__", "__dict__", "__reduce__", "fit", "decision_function", "predict", "n_iter_", "_memory", "a b"]
)
def test_attributes_that_prediction_does_not_need_are_refused(stored, name):
    def change(schema, of):
        found = attributes(of_class(schema, of))
        found[name] = found["n_features_in_"]
        types = of_class(schema, of)["content"]["key_types"]["content"]
        types.append(types[0])

    original = stored.read_bytes()
    rewrite(stored, change, "LDMClassifier")
    assert "which prediction does not need" in refusal(stored)
    if name in ("__class__", "fit"):
        stored.write_bytes(original)
        rewrite(stored, change, "MinMaxScaler")
        assert "which prediction does not need" in refusal(stored)


def test_what_concerns_the_machine_is_set_back_when_it_is_loaded(stored):
    def change(schema):
        text = {"__module__": "builtins", "__class__": "str", "__loader__": "JsonNode", "content": '"/tmp/pickles"'}
        attributes(of_class(schema, "Pipeline"))["memory"] = text

    rewrite(stored, change)
    assert load_model(stored).memory is None


def forge(path, name, value, which=0):
    """Put another array in the place of one of a file."""
    schema, about, arrays = unpack(path.read_bytes())
    found = [node[name] for node in map(attributes, nodes(schema, "ObjectNode")) if name in node]
    buffer = io.BytesIO()
    if sp.issparse(value):
        np.savez(buffer, indices=value.indices, indptr=value.indptr, format=b"csr", shape=value.shape, data=value.data)
    else:
        np.save(buffer, value)
    arrays[found[which]["file"]] = buffer.getvalue()
    path.write_bytes(pack(schema, about, arrays))


def test_arrays_that_would_lead_libsvm_astray_are_refused(tmp_path):
    model, path = SVC().fit(X, Y), tmp_path / "a.model"
    n = len(model.support_)
    for name, value in [
        ("_n_support", np.array([n, n, n], dtype=np.int32)),
        ("_n_support", np.array([-1, 1, n], dtype=np.int32)),
        ("support_vectors_", model.support_vectors_[:-1]),
        ("support_vectors_", model.support_vectors_[:, :2]),
        ("support_", model.support_[:-1]),
        ("_dual_coef_", np.zeros((1, n))),
        ("_intercept_", np.zeros(1)),
        ("_probA", np.zeros(1)),
        ("classes_", np.arange(4)),
    ]:
        save_model(model, path)
        forge(path, name, value)
        assert "SVC has parts that do not fit together" in refusal(path)
    save_model(SVC(kernel="precomputed").fit(X @ X.T, Y), path)
    forge(path, "support_", np.arange(n, dtype=np.int32) + 10**6)
    refusal(path)


def test_codes_beyond_the_columns_of_an_encoder_are_refused(tmp_path):
    """Rows of codes become sparse matrices without a look at the codes."""
    words = [["a"], ["b"], ["c"]]
    codes = [[0], [1], [2]]

    def spoilt():
        yield OneHotEncoder().fit(words), "_n_features_outs", [2]
        yield OneHotEncoder().fit(words), "_n_features_outs", [4, 5]
        yield OneHotEncoder().fit(words), "_infrequent_enabled", True
        yield OneHotEncoder(max_categories=2).fit(words), "_infrequent_indices", [None]
        yield OneHotEncoder(max_categories=2).fit(words), "_default_to_infrequent_mappings", [np.array([0, 9, 1])]
        yield OneHotEncoder(max_categories=2).fit(words), "_default_to_infrequent_mappings", [np.array([0, -1, 1])]
        yield OneHotEncoder(max_categories=2).fit(words), "_default_to_infrequent_mappings", [np.array([0, 1])]
        yield OneHotEncoder(drop="first").fit(words), "_drop_idx_after_grouping", np.array([9], dtype=object)
        yield OneHotEncoder().fit(codes), "categories_", [np.array([2, 1, 0])]
        yield OneHotEncoder().fit(codes), "categories_", [np.array([0.0, np.nan, 1.0])]

    for encoder_, name, value in spoilt():
        setattr(encoder_, name, value)
        with pytest.raises(ModelFileError, match="OneHotEncoder"):
            save_model(encoder_, tmp_path / "a.model")


def test_shapes_that_numpy_would_stretch_are_refused(tmp_path):
    kernel, linear, path = LDMClassifier(kernel="rbf").fit(X, Y), LinearSVC().fit(X, Y), tmp_path / "a.model"
    for model, name, value in [
        (kernel, "dual_coef_", kernel.dual_coef_[:, :3]),
        (kernel, "support_vectors_", kernel.support_vectors_[:, :2]),
        (kernel, "intercept_", np.zeros((1000, 1))),
        (kernel, "support_", kernel.support_[:-1]),
        (linear, "intercept_", np.zeros((1000, 1))),
        (linear, "coef_", np.zeros((1000, 1, 4))),
    ]:
        save_model(model, path)
        forge(path, name, value)
        assert "is of the wrong shape" in refusal(path)
    save_model(kernel, path)
    flag = {"__module__": "builtins", "__class__": "str", "__loader__": "JsonNode", "content": "true"}
    rewrite(path, lambda schema: attributes(of_class(schema, "LDMClassifier")).update(support_=flag))
    assert "lacks what prediction needs" in refusal(path)
    save_model(linear, path)
    forge(path, "coef_", np.full((3, 4), 7, dtype=np.uint8).view(bool))
    assert "a flag is neither true nor false" in refusal(path)


def test_columns_are_not_multiplied(tmp_path):
    """A small file made gigabytes of a few columns."""
    chooser = ColumnTransformer([("a", "passthrough", slice(0, 4))]).fit(X)
    (name, step, columns), indices = chooser.transformers_[0], chooser._transformer_to_input_indices
    for transformers, listed in [
        ([(name, step, columns)] * 100, indices),
        ([(f"a{k}", step, columns) for k in range(100)], {f"a{k}": [0] for k in range(100)}),
    ]:
        chooser.transformers_, chooser._transformer_to_input_indices = transformers, listed
        with pytest.raises(ModelFileError, match=r"one name twice|not listed"):
            save_model(chooser, tmp_path / "a.model")


@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("value", [10**6, -1])
def test_sparse_matrices_with_entries_outside_are_refused(part, value, tmp_path):
    path, model = tmp_path / "a.model", LSSVMClassifier(kernel="rbf").fit(sp.csr_matrix(X), Y)
    vectors = model.support_vectors_.copy()
    getattr(vectors, part)[1] = value
    save_model(model, path)
    forge(path, "support_vectors_", vectors)
    refusal(path)


@pytest.mark.parametrize(("name", "attribute"), [("LDMClassifier", "_stream"), ("PUMMAClassifier", "_memory")])
def test_state_of_training_is_neither_stored_nor_taken(name, attribute, tmp_path):
    model = getattr(margindist, name)()
    model.set_params(solver="asgd") if name == "LDMClassifier" else None
    model.partial_fit(X, Y, classes=[0, 1, 2])
    path = tmp_path / "a.model"
    save_model(model, path)

    def change(schema):
        node = of_class(schema, name)
        attributes(node)[attribute] = attributes(node)["coef_"]
        node["content"]["key_types"]["content"].append(node["content"]["key_types"]["content"][0])

    with pytest.raises(ValueError, match="model file"):
        load_model(path).partial_fit(X, Y)
    rewrite(path, change)
    refusal(path)


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
@given(data=st.binary(max_size=300), packed=st.booleans())
def test_random_bytes(data, packed, tmp_path):
    (tmp_path / "fuzz").write_bytes(pack(data, data, {}) if packed else data)
    load_or_refuse(tmp_path / "fuzz")


NAMES_TO_TRY = st.sampled_from(
    ["__class__", "__module__", "__loader__", "__id__", "content", "key_types", "file", "type", "protocol", "steps",
     "ObjectNode", "DictNode", "ListNode", "TupleNode", "JsonNode", "NdArrayNode", "SparseMatrixNode", "SliceNode",
     "TypeNode", "list", "builtins", "dict", "margindist", "LDMClassifier", "sklearn.pipeline", "Pipeline", "numpy"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES_TO_TRY
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES_TO_TRY | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
ABOUT = {"format": FORMAT, "versions": {}, "model": "", "classes": []}


@FUZZ
@given(schema=TREES, about=st.just(ABOUT) | TREES)
def test_invented_schemas(schema, about, tmp_path):
    schema = {"protocol": 2, **schema} if isinstance(schema, dict) else schema
    (tmp_path / "fuzz").write_bytes(pack(schema, about, {}))
    load_or_refuse(tmp_path / "fuzz")


def test_mutants_are_refused_or_do_no_harm(tmp_path):
    """The long version is ``python -m benchmarks.fuzz_models``."""
    outcomes, failures, _ = fuzz(400, 0, tmp_path)
    assert not failures, "\n".join(failures)
    assert outcomes["refused"] > 200 and outcomes["predicts"] > 30
