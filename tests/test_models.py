"""Model files: what comes back is what was stored, and nothing else ever comes out of a file."""

import contextlib
import hashlib
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
from margindist import (
    LDMClassifier,
    LSSVMClassifier,
    LSSVMClassifierCV,
    MAMClassifier,
    ODMClassifier,
    PUMMAClassifier,
)
from margindist.datasets import encoder
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
        assert vars(again).keys() == vars(model).keys()


def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
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
    table = frame().assign(flag=X[:, 0] > 0.5, town=[f"town {k % 60}" for k in range(len(X))])
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


def test_values_of_every_kind_come_back(tmp_path):
    values = {
        "nan": float("nan"),
        "inf": [np.inf, -np.inf, -0.0, 1e-320, 0.1],
        "tuple": (1, (2, None), "three", True),
        "set": {1, 5, 7},
        "dict": {1: "a", "b": 2.5, ("c", 1): None},
        "numpy": (np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("x"), np.float64("nan")),
        "dtype": (np.dtype(">f4"), np.dtype("<U7"), np.float32, float, object),
        "objects": np.array([["a", None], [1.5, float("nan")]], dtype=object),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 3)),
        "times": np.array(["2020-01-01"], dtype="datetime64[D]"),
        "csc": sp.csc_array(X),
        "slice": slice(1, None, 2),
        "text": "ends with \0 and has \ud800 and ü",
        "large": 10**30,
    }
    model = LSSVMClassifier().fit(X, Y)
    vars(model).update({f"extra_{key}_": value for key, value in values.items()})
    again = roundtrip(model, tmp_path)
    for key, value in values.items():
        found = getattr(again, f"extra_{key}_")
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
def test_online_learners_go_on_learning(name, kernel, tmp_path):
    model = make(name, kernel).set_params(gamma="auto").partial_fit(X[:40], Y[:40], classes=[0, 1, 2])
    again = roundtrip(model, tmp_path)
    for learner in (model, again):
        learner.partial_fit(X[40:], Y[40:])
    assert_same(again, model, X)
    np.testing.assert_array_equal(again.n_updates_, model.n_updates_)


def test_p_norm_learner_goes_on_learning(tmp_path):
    model = PUMMAClassifier(p="auto").fit(X[TWO], Y[TWO])
    again = roundtrip(model, tmp_path)
    assert_same(again.partial_fit(X[TWO], Y[TWO]), model.partial_fit(X[TWO], Y[TWO]), X)


def test_stochastic_gradients_go_on(tmp_path):
    model = LDMClassifier(solver="asgd", random_state=0).partial_fit(X[:40], Y[:40], classes=[0, 1, 2])
    again = roundtrip(model, tmp_path)
    assert_same(again.partial_fit(X[40:], Y[40:]), model.partial_fit(X[40:], Y[40:]), X)


def test_what_concerns_the_machine_is_set_back(tmp_path, tmp_path_factory):
    model = Pipeline([("c", LSSVMClassifier(n_jobs=2))], memory=str(tmp_path_factory.mktemp("cache"))).fit(X, Y)
    again = roundtrip(model, tmp_path)
    assert again.memory is None and again["c"].n_jobs is None


def test_loaded_models_can_be_cloned_and_fitted(tmp_path):
    model = make_pipeline(MinMaxScaler(), MAMClassifier(kernel="rbf")).fit(X, Y)
    again = sklearn.base.clone(roundtrip(model, tmp_path)).fit(X, Y)
    assert_same(again, model, X)


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


def test_arrays_are_stored_once(tmp_path):
    model = PUMMAClassifier(kernel="rbf").fit(X, Y)
    assert model.dual_coef_ is model._memory.learners.coef
    again = roundtrip(model, tmp_path)
    assert again.dual_coef_ is again._memory.learners.coef


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
        loop = LSSVMClassifier().fit(X, Y)
        loop.itself_ = [loop]
        yield loop, "contains itself"
        odd = LSSVMClassifier().fit(X, Y)
        odd.masked_ = np.ma.array([1.0], mask=[True])
        yield odd, "LSSVMClassifier.masked_ is an array of MaskedArray"

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


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def rewrite(path, change, *, rehash=True):
    """Change header and members in place; checksums are made to fit again, as a forger would."""
    members = contents(path)
    header = json.loads(members.pop("model.json"))
    change(header, members)
    if rehash:
        header["members"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in members.items()
        }
    forge(path, {**members, "model.json": json.dumps(header).encode()})


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
    forge(path, {"other.txt": b"hello"})
    assert "not a model file" in refusal(path)
    forge(path, {"model.json": b'{"kind": "other"}'})
    assert "not a model file" in refusal(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none")


def test_truncated_and_damaged_files_are_refused(stored):
    whole = stored.read_bytes()
    for length in (5, len(whole) // 2, len(whole) - 1):
        stored.write_bytes(whole[:length])
        assert "truncated" in refusal(stored) or "damaged" in refusal(stored)
    middle = whole.index(b"\x93NUMPY") + 200
    stored.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert "damaged" in refusal(stored)


def test_a_checksum_that_does_not_fit_is_refused(stored):
    def change(header, members):
        members["0.npy"] = members["0.npy"][:-1] + bytes([members["0.npy"][-1] ^ 1])

    rewrite(stored, change, rehash=False)
    assert "checksum of 0.npy does not fit" in refusal(stored)


def test_a_newer_format_is_refused_and_another_version_warns(stored):
    rewrite(stored, lambda header, _: header["versions"].update({"scikit-learn": "0.1"}))
    with pytest.warns(UserWarning, match=r"written with scikit-learn 0\.1, this is"):
        load_model(stored)
    rewrite(stored, lambda header, _: header.update(format=FORMAT + 1))
    assert f"format {FORMAT + 1}, made by a newer margindist" in refusal(stored)
    with pytest.raises(ModelFileError, match="newer margindist"):
        read_metadata(stored)


def test_compressed_and_oversized_members_are_refused(stored):
    members = contents(stored)
    forge(stored, members, zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(stored)

    def huge(header, members):
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (1 << 38,)})
        members["0.npy"] = buffer.getvalue()

    forge(stored, members)
    rewrite(stored, huge)
    assert "size of 0.npy does not fit" in refusal(stored)


def test_pickled_arrays_are_refused(stored, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    def change(header, members):
        buffer = io.BytesIO()
        np.save(buffer, np.array([Evil()], dtype=object), allow_pickle=True)
        members["0.npy"] = buffer.getvalue()

    rewrite(stored, change)
    assert "no plain data" in refusal(stored)
    assert not (tmp_path / "executed").exists()


def leaf(header):
    """Return the node of the classifier in the stored pipeline."""
    return header["tree"]["attributes"]["steps"][1]["tuple"][1]


@pytest.mark.parametrize(
    "name",
    ["os.system", "Popen", "eval", "RandomForestClassifier", "__class__", "LDMClassifier.fit", "_Writer", "", None, 3],
)
def test_classes_outside_the_list_are_refused(stored, name):
    rewrite(stored, lambda header, _: leaf(header).update({"class": name}))
    assert "not among those a model file may hold" in refusal(stored)


@pytest.mark.parametrize(
    "name",
    [
        "__class__",
        "__dict__",
        "__reduce__",
        "__sklearn_tags__",
        "fit",
        "decision_function",
        "_check_parameters",
        "_requirements",
        "_skl_callbacks",
        "a b",
        "",
    ],
)
def test_attributes_that_are_not_data_are_refused(stored, name):
    rewrite(stored, lambda header, _: leaf(header)["attributes"].update({name: 1}))
    assert "has the attribute" in refusal(stored)


@pytest.mark.parametrize(
    "node",
    [
        {"eval": "1"},
        {},
        {"type": "Popen"},
        {"type": ["float"]},
        {"dtype": "O8,O8"},
        {"dtype": "V8"},
        {"dtype": "U99999999"},
        {"scalar": "x", "dtype": "<f8"},
        {"scalar": 1, "dtype": "O"},
        {"float": "1_0"},
        {"set": [[1]]},
        {"dict": [[1]]},
        {"dict": [[[1], 2]]},
        {"tuple": 1},
        {"slice": [1, 2]},
        {"slice": [[], 1, 2]},
        {"array": "model.json"},
        {"array": "99.npy"},
        {"array": ["0.npy"]},
        {"array": "0.npy", "records": True},
        {"objects": [[1]], "shape": [1]},
        {"objects": [1], "shape": [2]},
        {"objects": [], "shape": [-1, 0]},
        {"sparse": "coo_matrix", "shape": [1, 1]},
        {"sparse": "csr_matrix", "shape": [1, 1], "data": [1], "indices": [0], "indptr": [0, 1]},
        {"generator": {"dict": []}},
        {"class": "Kernel", "attributes": {"name": "rbf"}},
        {"class": "Kernel"},
        {"class": "FunctionTransformer", "attributes": {"func": {"type": "str"}, "inverse_func": None}},
    ],
    ids=str,
)
def test_malformed_nodes_are_refused(stored, node):
    rewrite(stored, lambda header, _: leaf(header)["attributes"].update(extra_=node))
    refusal(stored)


def test_deep_trees_are_refused(stored):
    node = 1
    for _ in range(70):
        node = [node]
    rewrite(stored, lambda header, _: leaf(header)["attributes"].update(extra_=node))
    assert "nested too deeply" in refusal(stored)
    members = contents(stored)
    members["model.json"] = b"[" * 1_000_000
    forge(stored, members)
    refusal(stored)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def forged(model, tmp_path, find, value):
    """Store a model, put another array in the place of one it has, and return the refusal."""
    path = tmp_path / "a.model"
    save_model(model, path)

    def change(header, members):
        node = find(header["tree"]["attributes"])
        members[node["array"]] = npy(value)

    rewrite(path, change)
    return refusal(path)


def test_arrays_that_would_lead_compiled_code_astray_are_refused(tmp_path):
    dense, sparse = SVC().fit(X, Y), SVC().fit(sp.csr_matrix(X), Y)
    n = len(dense.support_)
    for find, value in [
        (lambda a: a["_n_support"], np.array([n, n, n], dtype=np.int32)),
        (lambda a: a["_n_support"], np.array([-1, 1, n], dtype=np.int32)),
        (lambda a: a["support_vectors_"], dense.support_vectors_[:-1]),
        (lambda a: a["support_vectors_"], dense.support_vectors_[:, :2]),
        (lambda a: a["_dual_coef_"], np.zeros((1, n))),
        (lambda a: a["_intercept_"], np.zeros(1)),
        (lambda a: a["_probA"], np.zeros(1)),
        (lambda a: a["support_"], np.full(n, 10**6, dtype=np.int32)),
    ]:
        assert "SVC has arrays that do not fit together" in forged(dense, tmp_path, find, value)
    path = tmp_path / "a.model"
    for changes in ({"_effective_probability": True}, {"probability": True, "_effective_probability": 1}):
        save_model(sparse, path)
        rewrite(path, lambda header, _, changes=changes: header["tree"]["attributes"].update(changes))
        assert "SVC has arrays that do not fit together" in refusal(path)
    save_model(sparse, path)
    rewrite(path, lambda header, _: header["tree"]["attributes"].update(kernel="precomputed"))
    assert "SVC has no kernel" in refusal(path)
    indices = sparse.support_vectors_.indices
    text = forged(sparse, tmp_path, lambda a: a["support_vectors_"]["indices"], np.full_like(indices, 10**6))
    assert "outside its shape" in text

    save_model(OneHotEncoder().fit([["a"], ["b"], ["c"]]), path)
    rewrite(path, lambda header, _: header["tree"]["attributes"].update(_n_features_outs=[1]))
    assert "OneHotEncoder has categories that do not fit together" in refusal(path)

    online = PUMMAClassifier().fit(X[TWO], Y[TWO])
    state = online._memory.learners[0]

    def field(name):
        return lambda a: a["_memory"]["attributes"]["learners"][0]["attributes"][name]

    for name, value in [
        ("columns", np.full_like(state.columns, 1000)),
        ("counts", np.full_like(state.counts, 1000)),
        ("slots", np.full_like(state.slots, 7)),
        ("kept", state.kept[:, :2]),
        ("v", state.v[:1]),
        ("soft_coefs", np.zeros(3)),
    ]:
        assert "PUMMAClassifier has a memory that does not fit" in forged(online, tmp_path, field(name), value)

    kernel = LDMClassifier(kernel="rbf").fit(X, Y)
    for name, value in [
        ("dual_coef_", kernel.dual_coef_[:, :3]),
        ("support_vectors_", kernel.support_vectors_[:, :2]),
        ("intercept_", np.zeros(7)),
        ("support_", -1 - kernel.support_),
    ]:
        assert "LDMClassifier has" in forged(kernel, tmp_path, lambda a, name=name: a[name], value)


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
@given(data=st.binary(max_size=300), zipped=st.booleans())
def test_random_bytes(data, zipped, tmp_path):
    path = tmp_path / "fuzz"
    if zipped:
        forge(path, {"model.json": data})
    else:
        path.write_bytes(data)
    load_or_refuse(path)


@FUZZ
@given(st.data())
def test_mutated_files(stored, data):
    whole = bytearray(stored.read_bytes())
    mutant = stored.with_name("mutant")
    start = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "copy"]))
    if kind == "flip":
        for position in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=8)):
            whole[position] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del whole[start : start + data.draw(st.integers(1, 4000))]
    elif kind == "insert":
        whole[start:start] = data.draw(st.binary(min_size=1, max_size=50))
    else:
        target = data.draw(st.integers(0, len(whole) - 1))
        piece = whole[start : start + data.draw(st.integers(1, 300))]
        whole[target : target + len(piece)] = piece
    mutant.write_bytes(whole)
    load_or_refuse(mutant)


def positions(tree, path=()):
    """Yield the way to every node of a JSON tree."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from positions(value, (*path, key))


NAMES_TO_TRY = st.sampled_from(
    ["__class__", "__reduce__", "__dict__", "__init__", "os.system", "eval", "class", "attributes", "array",
     "fit", "steps", "classes_", "kernel", "coef_", "_memory", "support_", "n_features_in_", "LDMClassifier",
     "Pipeline", "SVC", "OneHotEncoder", "Kernel", "sparse", "csr_matrix", "objects", "dtype", "0.npy", "rbf",
     "precomputed"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES_TO_TRY
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES_TO_TRY | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@FUZZ
@given(st.data())
def test_hostile_trees(stored, data):
    members = contents(stored)
    header = json.loads(members["model.json"])
    for _ in range(data.draw(st.integers(1, 3))):
        way = data.draw(st.sampled_from(list(positions(header))[1:]))
        node = header
        for key in way[:-1]:
            node = node[key]
        if isinstance(node, dict) and data.draw(st.booleans()):
            node[data.draw(NAMES_TO_TRY)] = node.pop(way[-1])
        else:
            node[way[-1]] = data.draw(TREES)
    hostile = stored.with_name("hostile")
    forge(hostile, {**members, "model.json": json.dumps(header).encode()})
    load_or_refuse(hostile)


@FUZZ
@given(header=st.dictionaries(NAMES_TO_TRY, TREES, max_size=3), tree=TREES, about=TREES, versions=TREES)
def test_invented_headers(header, tree, about, versions, tmp_path):
    header |= {"kind": "margindist model", "format": 1, "members": {}, "tree": tree, "about": about}
    forge(tmp_path / "fuzz", {"model.json": json.dumps({**header, "versions": versions}).encode()})
    load_or_refuse(tmp_path / "fuzz")


ROUNDED = np.round(X, 1)
TARGETS = [
    (SVC(), X),
    (SVC(), sp.csr_matrix(X)),
    (SVC(kernel="precomputed"), X @ X.T),
    (PUMMAClassifier(max_iter=3), X),
    (PUMMAClassifier(kernel="rbf", gamma=1.0, max_iter=3), X),
    (LDMClassifier(kernel="rbf"), sp.csr_matrix(X)),
    (make_pipeline(OneHotEncoder(drop="first"), LSSVMClassifier()), ROUNDED),
    (make_pipeline(OneHotEncoder(max_categories=4), LSSVMClassifier()), ROUNDED),
]


def mutated(array, data):
    """Return an array that differs in an entry, its length, its type or its shape."""
    kind = data.draw(st.sampled_from(["entry", "shorter", "longer", "type", "turned", "narrower"]))
    if kind == "entry" and array.size and array.dtype.kind in "if":
        array = array.copy()
        value = data.draw(st.sampled_from([0, -1, 100, 10**6, 2**31 - 1]))
        array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = value
    elif kind == "shorter":
        array = array[:-1]
    elif kind == "longer":
        array = np.concatenate([array, array])
    elif kind == "type" and array.dtype.kind in "if":
        array = array.astype(data.draw(st.sampled_from([np.int32, np.int64, np.float32, np.float64])))
    elif array.ndim == 2:
        array = array.T if kind == "turned" else array[:, :-1]
    return array


@pytest.mark.parametrize(("model", "rows"), TARGETS, ids=range(len(TARGETS)))
def test_forged_arrays_never_lead_compiled_code_astray(model, rows, tmp_path):
    """What is let through may predict nonsense or raise; a crash would end this process."""
    path, copy = tmp_path / "a.model", tmp_path / "b.model"
    save_model(model.fit(rows, Y), path)
    original = path.read_bytes()

    @settings(FUZZ, max_examples=60)
    @given(st.data())
    def forge_and_use(data):
        copy.write_bytes(original)

        def change(header, members):
            name = data.draw(st.sampled_from(sorted(members)))
            array = np.load(io.BytesIO(members[name]))
            if array.dtype.names is None and array.ndim:
                members[name] = npy(mutated(array, data))
            scalar = data.draw(st.sampled_from(["kernel", "n_features_in_", "_sparse", "_effective_probability", ""]))
            if scalar in header["tree"]["attributes"]:
                values = st.sampled_from([0, 1, 2.5, 10**9, True, None, "rbf", "precomputed"])
                header["tree"]["attributes"][scalar] = data.draw(values)

        rewrite(copy, change)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(ModelFileError):
                forged = load_model(copy)
                with contextlib.suppress(Exception):
                    forged.predict(rows)
                with contextlib.suppress(Exception):
                    forged.partial_fit(rows, Y)

    forge_and_use()
