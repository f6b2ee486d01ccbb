"""Mutated model files: each is refused with one sentence, or predicts finite scores of the right shape.

`python -m benchmarks.fuzz_models --mutants 15000 --seed 0` prints what became of the mutants and every failure, and
ends with an error if there was one. A crash of the process is a failure too, so it says which mutant it is at.
"""

import argparse
import faulthandler
import hashlib
import json
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

import margindist
from margindist.datasets import encoder
from margindist.estimators._base import MarginClassifier
from margindist.models import ModelFileError, load_model, read_metadata, save_model

PRELUDE = len(b"margindist model\n") + 32
HOSTILE = [
    None, True, False, 0, 1, -1, 2, 3, 5, 2**31, 2**63, 10**12, 10**30, 0.5, -1.5, 1e308, 1e-308, "", "nan", "rbf",
    "linear", "precomputed", "poly", "first", "ignore", "error", "LDMClassifier", "SVC", "Pipeline", "OneHotEncoder",
    "<f8", "<i4", "|O",
    [], {}, [0], [-1], [[1]], [2, 2], {"float": "nan"}, {"float": "inf"}, {"tuple": []}, {"dict": [[1, 2]]},
    {"slice": [None, None, None]}, {"type": "str"}, {"type": "float32"}, {"array": "<f8", "shape": []},
    {"objects": ["a", "b"]}, {"class": "Kernel", "parameters": {"name": "rbf"}},
    {"class": "StandardScaler", "parameters": {}}, {"class": "LSSVMClassifier", "parameters": {}},
]  # fmt: skip
DTYPES = [
    "<f8",
    "<f4",
    "<f2",
    "<i8",
    "<i4",
    "|i1",
    "|u1",
    "<u8",
    "|b1",
    "<U1",
    "<U2",
    "|S4",
    "<M8[s]",
    "<c16",
    "|O",
    ">f8",
]
NUMBERS = [0, 1, -1, 2, 7, 100, 10**6, 2**31 - 1, -(2**31), 1e12, np.nan, np.inf, -np.inf, 1e308, 1e-308, 0.5]


# ---------------------------------------------------------------------- models to mutate


def targets():
    """Return fitted models of every kind with rows that they take."""
    features, species = load_iris(return_X_y=True)
    X, y = MinMaxScaler().fit_transform(features)[::3], species[::3]
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    models = []
    for name in [name for name in margindist.__all__ if name.endswith("Classifier")]:
        cls = getattr(margindist, name)
        if name == "ECOCClassifier":
            models.append((cls(margindist.LSSVMClassifier()).fit(X, names), X))
            continue
        takes = cls().get_params()
        short = {"max_iter": 5} if "max_iter" in takes else {}
        for kernel in ("linear", "rbf", "precomputed") if "kernel" in takes else ("linear",):
            rows = X @ X.T if kernel == "precomputed" else X
            chosen = {"kernel": kernel, **short} if "kernel" in takes else short
            labels = y if kernel == "rbf" else names.astype(object)
            models.append((cls(**chosen).fit(rows, labels), rows))
            if kernel == "rbf":
                models.append((cls(**{**chosen, "kernel": "poly"}).fit(sp.csr_matrix(X), y > 0), sp.csr_matrix(X)))
    for model in (LinearSVC(), LogisticRegression(), RidgeClassifier(), SVC(), SVC(kernel="poly"),
                  OneVsRestClassifier(margindist.LSSVMClassifier()), OneVsOneClassifier(LinearSVC())):  # fmt: skip
        models += [(model.fit(X, names), X), (_again(model).fit(X, y > 0), X)]
    models.append((SVC().fit(sp.csr_matrix(X), y), sp.csr_matrix(X)))
    models.append((SVC(kernel="precomputed").fit(X @ X.T, y), X @ X.T))
    models += [(model, X) for model in _pipelines(X, y)]
    table = _table(X)
    return models + [(model.fit(table, names), table) for model in _table_pipelines(table)]


def _again(model):
    return type(model)(**model.get_params(deep=False))


def _pipelines(X, y):
    yield make_pipeline(StandardScaler(), margindist.LDMClassifier(kernel="rbf")).fit(X, y)
    yield make_pipeline(MaxAbsScaler(), Normalizer(), margindist.ODMClassifier()).fit(X, y)
    yield make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler(), LogisticRegression()).fit(X, y)
    yield make_pipeline(VarianceThreshold(), OneHotEncoder(handle_unknown="ignore"), SVC()).fit(np.round(X, 1), y)


def _table(X):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(X, columns=list("abcd"))
    return table.assign(colour=rng.choice(["red", "green", "blue"], len(X)), size=rng.choice(list("sml"), len(X)))


def _table_pipelines(table):
    yield make_pipeline(encoder(table), margindist.PUMMAClassifier(max_iter=3))
    encoders = [
        OneHotEncoder(drop="first", handle_unknown="ignore"),
        OneHotEncoder(min_frequency=0.3, handle_unknown="infrequent_if_exist"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ]
    for words in encoders:
        parts = [("words", make_pipeline(SimpleImputer(strategy="most_frequent"), words), ["colour", "size"])]
        yield make_pipeline(
            ColumnTransformer(parts, remainder=StandardScaler()), margindist.LSSVMClassifier(kernel="rbf")
        )


# ---------------------------------------------------------------------- mutation


def unpack(data):
    """Return the header and the bytes behind it."""
    length = int.from_bytes(data[PRELUDE : PRELUDE + 8], "little")
    return json.loads(data[PRELUDE + 8 : PRELUDE + 8 + length]), data[PRELUDE + 8 + length :]


def pack(header, body):
    """Return a file whose checksum fits, as a forger would."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    rest = len(text).to_bytes(8, "little") + text + body
    return b"margindist model\n" + hashlib.sha256(rest).digest() + rest


def ways(tree, way=()):
    """Yield the way to every node of a tree."""
    yield way
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from ways(value, (*way, key))


def at(tree, way):
    """Return the node at the end of a way."""
    for key in way:
        tree = tree[key]
    return tree


def array_nodes(header):
    """Return the nodes of the arrays in their order, each with its bytes' position and number."""
    found, start = [], 0
    for way in ways(header["tree"]):
        node = at(header["tree"], way)
        if isinstance(node, dict) and "array" in node:
            size = int(np.prod(node["shape"], dtype=int)) * np.dtype(node["array"]).itemsize
            found.append((node, start, size))
            start += size
    return found


def flip_bits(data, others, rng):
    """Damage a file, the checksum included."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut_or_insert(data, others, rng):
    """Take bytes out of a file or put some in, the checksum made to fit."""
    header, body = unpack(data)
    text = bytearray(json.dumps(header).encode())
    part = text if rng.random() < 0.5 or not body else bytearray(body)
    start = rng.randrange(len(part))
    part[start : start + rng.choice([0, 1, 8, 100])] = rng.randbytes(rng.choice([0, 1, 8]))
    return pack(bytes(text), body) if part is text else pack(header, bytes(part))


def flip_contents(data, others, rng):
    """Change bits of arrays, the checksum made to fit."""
    header, body = unpack(data)
    body = bytearray(body or b"\0")
    for _ in range(rng.randint(1, 8)):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return pack(header, bytes(body))


def edit_tree(data, others, rng):
    """Replace, remove, rename or exchange nodes of the header."""
    header, body = unpack(data)
    for _ in range(rng.randint(1, 2)):
        places = [way for way in ways(header) if way and (way[0] == "tree" or rng.random() < 0.3)]
        way = rng.choice(places)
        holder, key = at(header, way[:-1]), way[-1]
        kind = rng.choice(["replace", "replace", "remove", "rename", "exchange"])
        if kind == "replace":
            holder[key] = rng.choice(HOSTILE)
        elif kind == "remove":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[rng.choice(["coef_", "fit", "__class__", "kernel", "extra_", "_memory", "_stream"])] = holder.pop(
                key
            )
        else:
            other = rng.choice(places)
            holder[key] = json.loads(json.dumps(at(header, other))) if _is_there(header, other) else None
    return pack(header, body)


def _is_there(tree, way):
    try:
        at(tree, way)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def edit_array(data, others, rng):
    """Change entries, shape or type of an array so that the file is still whole."""
    header, body = unpack(data)
    found = array_nodes(header)
    if not found:
        return edit_tree(data, others, rng)
    node, start, size = rng.choice(found)
    array = np.frombuffer(body[start : start + size], dtype=node["array"]).reshape(node["shape"])
    kind = rng.choice(["entry", "entry", "shorter", "longer", "type", "turned", "shape", "declared"])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "entry" and array.size and array.dtype.kind in "iuf":
            array = array.copy()
            array.reshape(-1)[rng.randrange(array.size)] = np.array(rng.choice(NUMBERS)).astype(array.dtype)
        elif kind == "shorter" and array.ndim:
            array = array[:-1] if rng.random() < 0.5 else array[..., :-1]
        elif kind == "longer" and array.ndim:
            array = np.concatenate([array, array])
        elif kind == "type" and array.dtype.kind in "iufb":
            array = array.astype(rng.choice(["<f4", "<f8", "<i4", "<i8", "|b1", "<U3"]))
        elif kind == "turned":
            array = array.T
    node |= {"array": array.dtype.str, "shape": list(array.shape)}
    if kind == "shape":
        node["shape"] = rng.choice([[], [array.size], [1, array.size], [array.size, 1], [0, 10**12]])
    elif kind == "declared":
        node |= rng.choice([{"array": rng.choice(DTYPES)}, {"shape": [10**9]}, {"shape": [-1]}, {"order": "F"}])
    return pack(header, body[:start] + np.ascontiguousarray(array).tobytes() + body[start + size :])


def change_class(data, others, rng):
    """Give an object another class, or what an object of another model has learnt."""
    header, body = unpack(data)
    objects = [way for way in ways(header["tree"]) if _is_object(at(header["tree"], way))]
    node = at(header["tree"], rng.choice(objects))
    stranger, strange_body = unpack(rng.choice(others))
    found = [at(stranger["tree"], way) for way in ways(stranger["tree"])]
    other = rng.choice([one for one in found if _is_object(one)])
    kind = rng.choice(["class", "parameters", "fitted", "body", "mixed"])
    if kind in ("class", "parameters", "fitted"):
        node[kind] = other.get(kind, {})
    elif kind == "mixed":
        node["fitted"] = {**node.get("fitted", {}), **other.get("fitted", {})}
    return pack(header, strange_body if kind == "body" else body)


def _is_object(node):
    return isinstance(node, dict) and "class" in node and isinstance(node.get("parameters"), dict)


MUTATIONS = [flip_bits, cut_or_insert, flip_contents, edit_tree, edit_tree, edit_array, edit_array, change_class]


# ---------------------------------------------------------------------- judgement


def judge(path, rows):
    """Return what became of a mutant: "refused" or "predicts"; an AssertionError says what is wrong."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = load_model(path)
        except ModelFileError as error:
            text = str(error)
            assert text.startswith("The model file") and text.endswith(".") and "\n" not in text, text
            return "refused"
        read_metadata(path)
        rows = _rows_for(model, rows)
        scores, labels = model.decision_function(rows), model.predict(rows)
        n_rows, n_classes = rows.shape[0], len(model.classes_)
        widths = [()] if n_classes == 2 else [(n_classes,), (n_classes * (n_classes - 1) // 2,)]
        assert labels.shape == (n_rows,), f"labels have shape {labels.shape}"
        assert scores.shape[:1] == (n_rows,) and scores.shape[1:] in widths, f"scores have shape {scores.shape}"
        assert np.isfinite(scores).all(), "scores are not finite"
        assert np.isin(labels.astype(str), model.classes_.astype(str)).all(), "labels are none"
        _check_no_training(model, rows, labels)
    return "predicts"


def _rows_for(model, rows):
    """Return rows of as many columns, with the names, that the model takes."""
    columns = np.arange(model.n_features_in_) % rows.shape[1]
    if isinstance(rows, pd.DataFrame):
        if hasattr(model, "feature_names_in_"):
            rows = rows.iloc[:, columns]
            rows.columns = model.feature_names_in_
        return rows
    return rows[:, columns]


def _check_no_training(model, rows, labels):
    if isinstance(model, MarginClassifier) and hasattr(model, "partial_fit"):
        try:
            model.partial_fit(rows, labels)
        except ValueError:
            return
        raise AssertionError("partial_fit went on")


def fuzz(n_mutants, seed, folder, *, verbose=False):
    """Return how many mutants were refused or predict, and what went wrong with the others."""
    rng = random.Random(seed)
    path = Path(folder, "mutant.model")
    originals = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model, rows in targets():
            save_model(model, path)
            assert judge(path, rows) == "predicts"
            originals.append((path.read_bytes(), rows, type(model).__name__))
    files = [data for data, _, _ in originals]
    outcomes, failures, slowest = Counter(), [], 0.0
    for k in range(n_mutants):
        data, rows, name = originals[k % len(originals)]
        mutation = rng.choice(MUTATIONS)
        path.write_bytes(mutation(data, files, rng))
        if verbose and k % 500 == 0:
            print(f"mutant {k}: {dict(outcomes)}", flush=True)
        start = time.perf_counter()
        try:
            outcomes[judge(path, rows)] += 1
        except Exception as error:
            outcomes["failures"] += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            failures.append(f"mutant {k}, {name}, {mutation.__name__}: {type(error).__name__} in {where}: {error}")
            Path(folder, f"failure-{k}.model").write_bytes(path.read_bytes())
        slowest = max(slowest, time.perf_counter() - start)
    return outcomes, failures, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.enable()
    folder = tempfile.mkdtemp()
    start = time.perf_counter()
    outcomes, failures, slowest = fuzz(arguments.mutants, arguments.seed, folder, verbose=True)
    for line in failures:
        print(line.replace("\n", " ")[:300])
    print(
        f"{arguments.mutants} mutants in {time.perf_counter() - start:.0f} s: {dict(outcomes)}; slowest {slowest:.2f} s"
    )
    if failures:
        raise SystemExit(f"{len(failures)} failures, kept in {folder}.")


if __name__ == "__main__":
    main()
