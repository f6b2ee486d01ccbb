"""``margindist fit``, ``predict`` and ``export``."""

import ast
import csv
import io
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from margindist.cli.app import (
    SCORINGS,
    announce_compilation,
    check_outputs,
    complete_data,
    complete_methods,
    debug_option,
    encoding_option,
    naming_another_place,
    write,
)
from margindist.files import written_whole

_TABLES = (".csv", ".txt", ".parquet")
_FORMULAS = "=+-@\t\r"  # what a formula may begin with in a spreadsheet
_CURVES = {"sigmoid": "a sigmoid", "isotonic": "isotonic regression", "temperature": "temperature scaling"}


_memory_option = click.option(
    "--memory",
    metavar="SIZE",
    help="Read a file larger than memory in parts, using about this much memory, such as 2GB.",
)


@click.command(
    epilog="""
\b
Examples:
  margindist fit flowers.csv -o flowers.model
  margindist fit flowers.csv --target species --method odm-rbf -o flowers.model
  margindist fit wdbc --method ldm --set C=10 --set lambda1=100 -o wdbc.model
      Parameters that you set are not searched.
  margindist fit clicks/ --target clicked --method odm --memory 4GB -o clicks.model
  margindist fit X.npy --labels y.npy --memory 4GB -o big.model
      Files larger than memory are read in parts: folders, NPY, and with --memory all but ARFF and NPZ files.
  margindist fit flowers.csv --calibrate sigmoid -o flowers.model
      Adds probabilities to the predictions; isotonic is better from about a thousand rows on.
"""
)
@click.argument("data", shell_complete=complete_data)
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The model file.")
@click.option("--target", metavar="COLUMN", help="Target column of a file.  [default: guessed]")
@click.option(
    "--method",
    "key",
    default="ldm",
    show_default=True,
    metavar="KEY",
    shell_complete=complete_methods,
    help="One of the methods of compare.",
)
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the method.")
@click.option(
    "--folds",
    type=click.IntRange(2, 100),
    default=5,
    show_default=True,
    help="Number of folds of the parameter search.",
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Random seed.")
@click.option("--quick", is_flag=True, help="Fewer parameters to try.")
@click.option(
    "--scoring",
    type=click.Choice(SCORINGS),
    default="accuracy",
    show_default=True,
    help="Score by which parameters are chosen.",
)
@click.option(
    "--calibrate",
    type=click.Choice(list(_CURVES)),
    help="Turn decision values into probabilities with this curve, fitted to held-out rows.",
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Folder of data sets known by name.")
@_memory_option
@click.option("--labels", type=click.Path(), help="NPY file or folder with the labels of NPY files.")
@encoding_option
@debug_option
def fit(data, output, target, key, given, folds, seed, quick, scoring, calibrate, data_dir, memory, labels, encoding):
    """Choose parameters by cross-validation, fit one method to all of DATA, and write a model file.

    The file contains no code and is safe to share; margindist predict and margindist.load_model read it.
    """
    from margindist.compare import train

    check_outputs([output], [data])
    start = time.perf_counter()
    in_parts = _read_in_parts(data, memory)
    if labels is not None and not in_parts:
        raise click.UsageError("--labels is for NPY files, whose labels are in a file of their own.")
    if in_parts:
        data, target = _parts(data, target, labels, memory), None
        click.echo(f"{data}; every pass reads all of them.", err=True)
    announce_compilation([key])
    trained = train(
        data, target=target, method=key, parameters=_settings(given), folds=folds, seed=seed, quick=quick,
        scoring=scoring, calibrate=calibrate, data_dir=data_dir, encoding=encoding,
    )  # fmt: skip
    _save(trained, output, with_checksum=not in_parts)
    _describe(trained, scoring, calibrate)
    click.echo(f"Model: {output.resolve()} ({time.perf_counter() - start:.1f} s)")


def _save(trained, output, with_checksum):
    """Write the model file, with what is known about the data."""
    from margindist.models import save_model

    data = trained.dataset
    save_model(
        trained.model, output, feature_names=data.feature_names or None, target_name=data.target_name,
        data_name=data.name, data_checksum=data.checksum if with_checksum else None, notes=data.notes,
        about={"spellings": _needed(data.spellings, data.feature_names, data.target_name)},
    )  # fmt: skip


def _needed(spellings, features, target):
    """Return how those columns of text were read of which a model needs something; labels are what they are."""
    from margindist.datasets.spelling import Words, from_plain, names_of

    needed = {}
    for name, described in spellings.items():
        how = from_plain(described, name)
        if set(names_of(name, how)) & set(features) or (name == target and isinstance(how, Words)):
            needed[name] = described
    return needed


def _describe(trained, scoring, calibrate):
    """Say what was guessed about the data, what was fitted, and how well it did within the search."""
    from margindist.compare.scoring import LABELS
    from margindist.runs.wording import setting

    for note in [*trained.dataset.notes, *trained.notes]:
        click.echo(note)
    click.echo(f"{trained.label} with {setting(trained.parameters)}.")
    if trained.inner_score is not None:
        name, value = LABELS[scoring], abs(trained.inner_score)
        click.echo(
            f"{name[0].upper()}{name[1:]} in the cross-validation that chose the parameters: {value:.3f} (a little "
            "optimistic; margindist compare gives a fair estimate)."
        )
    if calibrate is not None:
        click.echo(f"Probabilities by {_CURVES[calibrate]}.")


def _read_in_parts(data, memory):
    """Tell whether a file is to be read in parts: asked for, or never read otherwise."""
    return memory is not None or Path(data).is_dir() or Path(data).suffix.lower() == ".npy"


def _parts(data, target, labels, memory):
    from margindist.datasets import DataError, Partitions

    rows = Partitions.from_path(data, target, labels=labels, memory=memory)
    if rows[0].y is None:
        raise DataError(f"{data}: NPY files have no labels; name the file that has them by --labels.")
    return rows.watched(lambda sentence: click.echo(sentence, err=True))


def _settings(given):
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as C=10.", param_hint="--set")
        try:
            settings[name.strip()] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name.strip()] = _number_or_text(value)
    return settings


def _number_or_text(value):
    try:
        return float(value)  # inf and nan are not Python literals
    except ValueError:
        return value


@click.command(
    epilog="""
\b
Examples:
  margindist predict flowers.model new.csv                        to the standard output
  margindist predict flowers.model new.csv -o predictions.csv
  margindist predict flowers.model new.parquet -o predictions.parquet
  margindist predict clicks.model new/ --memory 2GB -o predictions.parquet
  margindist predict flowers.model new.csv --keep id --keep name  columns of the file beside the predictions
  margindist predict flowers.model new.csv --keep name --escape-formulas -o for_a_spreadsheet.csv
  cat new.csv | margindist predict flowers.model -                from the standard input
"""
)
@click.argument("model", type=click.Path(dir_okay=False))
@click.argument("data", type=click.Path(allow_dash=True))
@click.option("--keep", multiple=True, metavar="COLUMN", help="Column of DATA to copy next to the predictions.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="CSV or Parquet file, by its extension.  [default: standard output]",
)
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="Write an apostrophe before text that a spreadsheet would run as a formula, such as =1+1.",
)
@_memory_option
@encoding_option
@debug_option
def predict(model, data, keep, output, escape_formulas, memory, encoding):
    """Predict the rows of the file DATA with a MODEL file: a label and decision values for each.

    A model that was fitted with --calibrate also gives the probability of every class. Columns are found by name;
    others are ignored. Dates, thousands and decimal commas are read as those that the model was fitted to, and a value
    that is written otherwise is an error. If DATA has the target column, the accuracy is printed too.
    """
    from margindist.cli.judging import Judge
    from margindist.models import load_model, read_metadata

    check_outputs([output], [model, data])
    if output != "-" and Path(output).suffix.lower() not in _TABLES:
        raise click.UsageError(f"{output}: predictions are written as {', '.join(_TABLES)}; name a file that ends so.")
    metadata, fitted = read_metadata(model), load_model(model)
    judge = Judge(metadata, _seen_categories(fitted))
    with _readable_twice(data) as file:
        tables = _tables(file, memory, fitted, metadata, keep, encoding)
        _write_columns(_predictions(tables, fitted, metadata, judge), output, escape_formulas)
    for sentence in judge.sentences():
        click.echo(sentence, err=output == "-")
    if output != "-":
        click.echo(f"Predictions: {Path(output).resolve()}")


@contextmanager
def _readable_twice(data):
    """Yield the file, or one with what comes from the standard input."""
    if data != "-":
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stdin")
        path.write_bytes(sys.stdin.buffer.read())
        yield path


def _tables(data, memory, fitted, metadata, keep, encoding):
    """Yield the rows to predict, all of a file or its parts, each with the columns to keep."""
    from margindist.cli.judging import texts_of
    from margindist.datasets import Dataset, Partitions, read_file

    texts, told = _columns_of(fitted, "categories"), metadata.about.get("spellings", {})
    if not isinstance(told, dict):
        raise ValueError("the model file does not say in a way that is understood how columns were read.")
    if not _read_in_parts(data, memory):
        dataset = read_file(data, target=False, text=texts, encoding=encoding, spellings=told)
        for note in dataset.notes:
            click.echo(note, err=True)
        spelled = read_file(data, target=False, text=keep, encoding=encoding) if keep else dataset
        _check_kept(keep, spelled.feature_names, data)
        yield dataset, {name: texts_of(spelled, name) for name in keep}
        return
    wanted = (*(metadata.feature_names or ()), metadata.target_name, *keep)
    told = {name: {"kind": "words"} for name in (*keep, *texts)} | told
    rows = Partitions.from_path(data, memory=memory, predicting=wanted, spellings=told)
    names = rows.feature_names or ()
    _check_kept(keep, names, data)
    for piece in rows:
        dataset = Dataset(rows.name, piece.X, None, names, "", None, str(data))
        yield dataset, {name: texts_of(dataset, name) for name in keep}


def _check_kept(keep, names, data):
    from margindist.datasets.dataset import column_hint

    for name in keep:
        if name not in names:
            hint = column_hint(name, names) if names else "its columns have no names."
            raise ValueError(f"{Path(data).name}: there is no column {name!r} to keep; {hint}")


def _predictions(tables, fitted, metadata, judge):
    """Yield the columns of predictions for one table after the other; the judge sees them too."""
    probable, scorer = _has_probabilities(fitted), _scorer(fitted)
    for dataset, kept in tables:
        X = _arranged(dataset, fitted, metadata)
        judge.see_categories(X)
        decision, labels = np.asarray(scorer.decision_function(X)), fitted.predict(X)
        judge.see_labels(dataset, labels)
        columns = {"prediction": labels}
        if decision.ndim == 1:
            columns["decision"] = decision
        else:
            columns |= {f"decision_{label}": decision[:, k] for k, label in enumerate(fitted.classes_)}
        if probable:
            p = fitted.predict_proba(X)
            columns |= {f"probability_{label}": p[:, k] for k, label in enumerate(fitted.classes_)}
        yield _beside(kept, columns)


def _beside(kept, columns):
    """Return columns of the file and of the predictions; one of the file that is called as one of these is renamed."""
    taken = {*kept, *columns}
    renamed = {}
    for name, values in kept.items():
        free = name
        while free in renamed or (free != name and free in taken) or free in columns:
            free = f"kept_{free}"
        renamed[free] = values
    return renamed | columns


def _has_probabilities(fitted):
    """Tell whether a model was calibrated; others with ``predict_proba`` were not fitted here."""
    return hasattr(fitted[-1] if hasattr(fitted, "steps") else fitted, "calibrated_classifiers_")


def _scorer(fitted):
    """Return the model with the decision values that a calibrated one turns into probabilities."""
    if not _has_probabilities(fitted):
        return fitted
    from sklearn.pipeline import Pipeline

    steps = fitted.steps if hasattr(fitted, "steps") else [("classify", fitted)]
    return Pipeline([*steps[:-1], ("classify", steps[-1][1].calibrated_classifiers_[0].estimator)])


def _seen_categories(fitted):
    """Return the categories that the model has seen, by column."""
    names = _columns_of(fitted, "categories")
    return dict(zip(names, fitted[0].named_transformers_["categories"][-1].categories_)) if names else {}


def _columns_of(fitted, kind):
    """Return the names of the columns that the model takes as this kind."""
    coder = fitted[0] if hasattr(fitted, "steps") else None
    if not hasattr(coder, "transformers_") or not hasattr(coder, "feature_names_in_"):
        return ()
    if kind not in coder.named_transformers_:
        return ()
    return tuple(coder.feature_names_in_[coder._transformer_to_input_indices[kind]])


def _arranged(dataset, fitted, metadata):
    """The columns that the model takes, in its order."""
    import scipy.sparse as sp

    X = dataset.X
    names = dataset.feature_names
    wanted = metadata.feature_names
    file = Path(dataset.source).name
    if sp.issparse(X):
        expected = fitted.n_features_in_
        if X.shape[1] > expected:
            raise ValueError(f"{file}: has {X.shape[1]} columns, but the model takes {expected}.")
        return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], expected))
    if wanted and names:
        missing = [name for name in wanted if name not in names]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ValueError(
                f"{file}: lacks the column{'s' if missing[1:] else ''} "
                f"{', '.join(map(repr, missing[:3]))}{more}, which the model needs."
            )
        X = X[list(wanted)] if hasattr(X, "columns") else X[:, [names.index(name) for name in wanted]]
    if hasattr(fitted, "feature_names_in_") and not hasattr(X, "columns"):
        import pandas as pd

        X = pd.DataFrame(X, columns=list(fitted.feature_names_in_))
    return _kinds_as_fitted(X, fitted) if hasattr(X, "columns") else X


def _kinds_as_fitted(X, fitted):
    """A column of categories may hold numbers only in the new rows; a column of numbers must hold numbers."""
    import pandas as pd

    X = X.copy()
    for name in _columns_of(fitted, "categories"):
        if pd.api.types.is_numeric_dtype(X[name]):  # in formats that distinguish numbers from text
            X[name] = X[name].map(lambda value: f"{value:.15g}", na_action="ignore").astype(object)
    for name in _columns_of(fitted, "numbers"):
        if not pd.api.types.is_numeric_dtype(X[name]):
            raise ValueError(f"the column {name!r} must hold numbers, as it did for the model.")
    return X if hasattr(fitted, "feature_names_in_") else X.to_numpy(dtype=float)


def _write_columns(parts, output, escape_formulas):
    """Write columns, part after part, to a file that appears whole or not at all; "-" is the standard output."""
    if output == "-":
        for number, columns in enumerate(parts):
            click.echo(_csv(columns, number == 0, escape_formulas), nl=False)
        return
    parquet = str(output).lower().endswith(".parquet")
    with naming_another_place(output), written_whole(output) as file:
        if parquet:
            _write_parquet(parts, file)
            return
        for number, columns in enumerate(parts):
            file.write(_csv(columns, number == 0, escape_formulas).encode())


def _csv(columns, header, escape_formulas):
    if escape_formulas:
        columns = {_escaped(name): _escaped_values(values) for name, values in columns.items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values())))
    return text.getvalue()


def _escaped_values(values):
    return np.array(list(map(_escaped, values.tolist())), dtype=object) if values.dtype.kind in "UO" else values


def _escaped(text):
    """Return a text that no spreadsheet takes for a formula; numbers stay what they are."""
    from margindist.datasets import spelling

    is_number = text[:1] in "+-" and spelling.is_number(text)
    return f"'{text}" if text[:1] in _FORMULAS and text and not is_number else text


def _write_parquet(parts, file):
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for columns in parts:
        table = pa.table(
            {
                name: pa.array(values.tolist()) if values.dtype.kind in "UO" else values
                for name, values in columns.items()
            }
        )
        if writer is None:
            writer = pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    writer.close()


@click.command(
    epilog="""
\b
Examples:
  margindist export flowers.model -o flowers.onnx
"""
)
@click.argument("model", type=click.Path(dir_okay=False))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The ONNX file.")
@debug_option
def export(model, output):
    """Write a MODEL file as ONNX, for use without Python."""
    from margindist.models import load_model
    from margindist.onnx import to_onnx

    check_outputs([output], [model])
    write(output, to_onnx(load_model(model)).SerializeToString())
    click.echo(f"ONNX model: {Path(output).resolve()}")
