"""Mutated model files: each is refused with one sentence, or its model predicts or raises an error.

`python -m benchmarks.fuzz_models --mutants 20000 --seed 0` prints what became of the mutants and every failure, and
ends with an error if there was one. A crash of the process is a failure too, so it says which mutant it is at; so is
whatever takes more than ten seconds, or more than four gigabytes beyond what the process took before.
"""

import argparse
import faulthandler
import io
import json
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
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

HOSTILE = [
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 0.5, 1e308, "", "[[[[", "1" * 5000,
    '"rbf"', '"precomputed"', "-1", "1e400", "null", "true", "SVC", "Pipeline", "OneHotEncoder", "LDMClassifier",
    "Popen", "eval", "subprocess", "builtins", "numpy", "os", "sklearn.svm", "sklearn.tree", "void", "map", "object",
    "JsonNode", "DictNode", "ListNode", "TupleNode", "TypeNode", "ObjectNode", "FunctionNode", "MethodNode", "SetNode",
    "PartialNode", "CachedNode", "ConstructorFromReduceNode", "OperatorFuncNode", "RandomGeneratorNode", "TreeNode",
    "BytesNode", "MaskedArrayNode", "SparseMatrixNode", "NdArrayNode", "0.npy", "1.npy", "schema.json", [], {}, [0],
]  # fmt: skip
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
    for method in ("sigmoid", "isotonic"):
        yield CalibratedClassifierCV(margindist.LSSVMClassifier(), method=method, ensemble=False).fit(X, y)
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
    """Return the schema, the metadata and the arrays of a file."""
    with ZipFile(io.BytesIO(data)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(found.pop("schema.json")), json.loads(found.pop("margindist.json")), found


def pack(schema, about, arrays, compression=ZIP_STORED):
    """Return a whole file, as a forger would write it."""
    contents = {"margindist.json": about, "schema.json": schema, **arrays}
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", compression) as archive:
        for name, content in contents.items():
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            archive.writestr(ZipInfo(name), text, compression)
    return buffer.getvalue()


def ways(tree, way=()):
    """Yield the way to every value of a tree."""
    yield way
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from ways(value, (*way, key))


def at(tree, way):
    """Return the value at the end of a way."""
    for key in way:
        tree = tree[key]
    return tree


def nodes(schema, *loaders):
    """Return the nodes of a schema, of these kinds if any are given."""
    found = [at(schema, way) for way in ways(schema)]
    found = [node for node in found if isinstance(node, dict) and "__loader__" in node]
    return [node for node in found if not loaders or node["__loader__"] in loaders]


def attributes(node):
    """Return the nodes of an object's attributes by name."""
    return node.get("content", {}).get("content", {})


def flip_bits(data, others, rng):
    """Damage a file."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut_or_insert(data, others, rng):
    """Take bytes out of a part of a file or put some in."""
    schema, about, arrays = unpack(data)
    parts = {"schema.json": json.dumps(schema).encode(), "margindist.json": json.dumps(about).encode(), **arrays}
    name = rng.choice(list(parts))
    part = bytearray(parts[name])
    start = rng.randrange(len(part))
    part[start : start + rng.choice([0, 1, 8, 100])] = rng.randbytes(rng.choice([0, 1, 8]))
    parts[name] = bytes(part)
    return pack(parts.pop("schema.json"), parts.pop("margindist.json"), parts)


def flip_contents(data, others, rng):
    """Change bits of arrays."""
    schema, about, arrays = unpack(data)
    for _ in range(rng.randint(1, 8) if arrays else 0):
        name = rng.choice(list(arrays))
        content = bytearray(arrays[name])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        arrays[name] = bytes(content)
    return pack(schema, about, arrays)


def edit_tree(data, others, rng):
    """Replace, remove, rename or exchange values of the schema or of the metadata."""
    schema, about, arrays = unpack(data)
    whole = {"schema": schema, "about": about}
    for _ in range(rng.randint(1, 2)):
        places = [way for way in ways(whole) if len(way) > 1 and (way[0] == "schema" or rng.random() < 0.3)]
        way = rng.choice(places)
        holder, key = at(whole, way[:-1]), way[-1]
        kind = rng.choice(["replace", "replace", "remove", "rename", "exchange", "share"])
        if kind == "remove":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            names = ["coef_", "fit", "predict", "__class__", "kernel", "_memory", "_stream", "__id__", "__loader__"]
            holder[rng.choice(names)] = holder.pop(key)
        elif kind == "exchange":
            holder[key] = json.loads(json.dumps(at(whole, rng.choice(places))))
        elif kind == "share":
            one, other = rng.choice(nodes(schema)), rng.choice(nodes(schema))
            one["__id__"] = other["__id__"] = 7
        else:
            holder[key] = rng.choice(HOSTILE)
    return pack(whole["schema"], whole["about"], arrays)


def edit_array(data, others, rng):
    """Change entries, shape or type of an array, or of a part of a sparse matrix."""
    schema, about, arrays = unpack(data)
    if not arrays:
        return edit_tree(data, others, rng)
    name = rng.choice(list(arrays))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if arrays[name][:2] == b"PK":
            with np.load(io.BytesIO(arrays[name])) as parts:
                parts = dict(parts)
            one = rng.choice(["indices", "indptr", "data", "shape"])
            parts[one] = _edited(parts[one], rng)
            arrays[name] = _saved(lambda file: np.savez(file, **parts))
        else:
            array = _edited(np.load(io.BytesIO(arrays[name])), rng)
            arrays[name] = _saved(lambda file: np.save(file, array))
    if rng.random() < 0.1:  # says that it is larger
        arrays[name] = arrays[name].replace(b"'shape': (", b"'shape': (9")
    return pack(schema, about, arrays)


def _saved(save):
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _edited(array, rng):
    kind = rng.choice(["entry", "entry", "shorter", "longer", "type", "turned", "column", "empty", "widened"])
    if kind == "entry" and array.size and array.dtype.kind in "iuf":
        array = array.copy()
        array.reshape(-1)[rng.randrange(array.size)] = np.array(rng.choice(NUMBERS)).astype(array.dtype)
    elif kind == "shorter" and array.ndim:
        array = array[:-1] if rng.random() < 0.5 else array[..., :-1]
    elif kind == "longer" and array.ndim:
        array = np.concatenate([array, array])
    elif kind == "type" and array.dtype.kind in "iufb":
        array = array.astype(rng.choice(["<f4", "<f8", "<i4", "<i8", "|b1", "<U3", "<c16", "V4"]))
    elif kind == "turned":
        array = array.T
    elif kind == "column":
        array = array.reshape(-1, 1)
    elif kind == "empty":
        array = array.reshape(-1)[:0]
    elif kind == "widened" and array.dtype.kind in "iuf":
        array = np.resize(array, (rng.choice([1, 3, 30_000]), 1, 1))
    return array


def change_class(data, others, rng):
    """Give an object another class, or what an object of another model has learnt."""
    schema, about, arrays = unpack(data)
    stranger, _, strange = unpack(rng.choice(others))
    node, other = rng.choice(nodes(schema, "ObjectNode")), rng.choice(nodes(stranger, "ObjectNode"))
    kind = rng.choice(["class", "content", "arrays", "mixed", "one"])
    if kind == "class":
        node |= {key: other[key] for key in ("__class__", "__module__")}
        return pack(schema, about, arrays)
    if kind == "arrays":
        return pack(schema, about, {**arrays, **strange})
    for one in nodes(other):
        if "file" in one:
            arrays["other " + one["file"]] = strange[one["file"]]
            one["file"] = "other " + one["file"]
    if kind == "content":
        node["content"] = other["content"]
    elif kind == "mixed" or not attributes(other) or not attributes(node):
        node["content"]["content"] = {**attributes(node), **attributes(other)}
    else:
        attributes(node)[rng.choice(list(attributes(node)))] = rng.choice(list(attributes(other).values()))
    return pack(schema, about, arrays)


def compress(data, others, rng):
    """Write a file that holds more than its size."""
    schema, about, arrays = unpack(data)
    if arrays and rng.random() < 0.5:
        arrays[rng.choice(list(arrays))] = _saved(lambda file: np.save(file, np.zeros(10**6)))
    return pack(schema, about, arrays, ZIP_DEFLATED)


MUTATIONS = [flip_bits, cut_or_insert, flip_contents, *[edit_tree] * 3, *[edit_array] * 3, change_class, compress]


# ---------------------------------------------------------------------- judgement


def judge(path, rows):
    """Return what became of a mutant: "refused", "raises" or "predicts"; an AssertionError says what is wrong."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = load_model(path)
        except ModelFileError as error:
            text = str(error)
            assert text.startswith("The model file") and text.endswith(".") and "\n" not in text, text
            return "refused"
        read_metadata(path)
        if isinstance(model, MarginClassifier) and hasattr(model, "partial_fit"):
            _check_no_training(model, rows)
        try:
            labels = model.predict(_rows_for(model, rows))
        except MemoryError:
            raise
        except Exception:
            return "raises"
        assert len(labels) == rows.shape[0], f"{len(labels)} labels"
    return "predicts"


def _rows_for(model, rows):
    """Return rows of as many columns, with the names, that the model takes."""
    if model.n_features_in_ > 10 * rows.shape[1]:
        return rows
    columns = np.arange(model.n_features_in_) % rows.shape[1]
    if isinstance(rows, pd.DataFrame):
        if hasattr(model, "feature_names_in_"):
            rows = rows.iloc[:, columns]
            rows.columns = model.feature_names_in_
        return rows
    return rows[:, columns]


def _check_no_training(model, rows):
    try:
        model.partial_fit(rows, np.arange(rows.shape[0]) % 2)
    except Exception:
        return
    raise AssertionError("partial_fit went on")


def _too_slow(*_):
    raise AssertionError("takes more than ten seconds")


def fuzz(n_mutants, seed, folder, *, verbose=False):
    """Return how many mutants were refused, raise or predict, and what went wrong with the others."""
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
        signal.signal(signal.SIGALRM, _too_slow)
        signal.alarm(10)
        try:
            outcomes[judge(path, rows)] += 1
        except (Exception, MemoryError) as error:
            outcomes["failures"] += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            failures.append(f"mutant {k}, {name}, {mutation.__name__}: {type(error).__name__} in {where}: {error}")
            Path(folder, f"failure-{k}.model").write_bytes(path.read_bytes())
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
    return outcomes, failures, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.enable()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**32, -1))
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
