r"""Mutated files, read by us and by a reference: `python -m benchmarks.fuzz_readers --mutants N --seed S`.

Small valid files are damaged at random and read by `read_file`. It must refuse a mutant with one `DataError` of one
line, or give the values that the format's reference gives: pandas (CSV, with pyarrow Parquet and Feather), liac-arff
(ARFF), NumPy (NPZ) and scikit-learn (LIBSVM text). Another error, another value, more than 5 seconds or 500 MB are
failures; the number that is printed with each makes the mutant again: `--format csv --only 1234`.

Deliberate differences, allowed for below and nowhere else:

- CSV: blanks around a value are trimmed, also within quotes; what counts as missing is our list; whole numbers of more
  than 64 bits are numbers, which pandas leaves as text. Comments at the top, text in cp1252, and numbers with currency,
  per cent or thousands are read where a note says so, and the note tells how to compare.
- ARFF: `<null>` (KEEL), `nan` and empty fields are missing; a fraction in an integer attribute is kept, where
  liac-arff cuts it off; nominal values and names may hold what liac-arff wants in quotes; a control character or
  unusual space alone is a value, which liac-arff takes for an empty field.
- LIBSVM text: none.
- NPZ, Parquet and Feather: numbers become float64, dates their parts, and columns of other kinds are left out; columns
  of the last two have the names of the schema, whatever pandas' own notes in the file say.
"""

import argparse
import io
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from pyarrow import feather, parquet
from sklearn.datasets import load_svmlight_file

from benchmarks._measure import table
from margindist.datasets import DataError, read_file
from margindist.datasets.dataset import MISSING, MISSING_NUMBERS
from margindist.datasets.delimited import BLANKS, BOM, _sniff_delimiter

LONGEST, MOST_MEGABYTES = 5.0, 500
SHARES = {"csv": 22, "arff": 16, "npz": 4, "parquet": 6, "feather": 6, "svm": 14}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
TOKENS = [
    *(chr(code) for code in (1, 8, 9, 11, 12, 13, 26, 27, 28, 31, 32, 127, 0x85, 0xA0, 0x2009, 0x2028, 0x3000, 0xFEFF)),
    *"\n,;:|\"'?{}%@#\\_+-.eE0159",
    *"\u0663\uff11\u2212\u00bd\u00b2\u4e94", "\u0661\u0662,\u0665", "\uff11,\uff15",
    "\0", "\r\n", '""', '"a"x', '"', "\\n", "\\t", "\\u0041", "\\101", "\\d", "\\'", "1_000", "0x10", "1e400", "1e-400",
    "1d5", "inf", "-Infinity", "nan", "NaN", "-nan", "+nan", "nAn", "NA", "null", "<null>", "1,5", ",5", "1.", "+.5",
    "-", "1e", "1e+", "9007199254740993", "-0.0", "123456789012345678901234567890", "0.1000000000000000055511151231257",
    "00000000012", '"1,234"', '"1.234,5"', "$5", "12%", "3 €", "n/a", "--", "2024-02-30", "31.12.2024", "# no",
    "@data", "@attribute z numeric", "% no", "qid:1", "3:4", "{0 1}", "{1 b}", "0 ", " 7", "é",
]  # fmt: skip

SHAPES = [
    "(0, 4000000000)", "(4000000000, 0)", "(0,)", "(6, 3, 1)", "(1000000000,)", "(6,)", "(3, 6)", "(2, 9)", "(9, 2)",
    "(6, 30000000)", "()", "(12,)", "(1, 2)", "(2, 1)", "(-1, 3)", "(18446744073709551616, 1)",
]  # fmt: skip
DTYPES = [
    "'<f4'", "'<f8'", "'>f8'", "'<u8'", "'<i8'", "'>i8'", "'<i4'", "'<f2'", "'<f16'", "'|O'", "'<U0'", "'|S0'", "'<U2'",
    "'<U900000'", "'<c8'", "'|b1'", "'|S8'", "'<M8[s]'", "'|V8'", "[('a', '<f8')]",
]  # fmt: skip


@dataclass
class Tally:
    """What became of the mutants of one format."""

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    slowest: float = 0.0
    megabytes: float = 0.0


class TooLongError(BaseException):
    """Not an Exception, so that no reader turns it into a sentence."""


@contextmanager
def limited(seconds):
    """Raise TooLongError after so many seconds of the processor."""

    def stop(*_):
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# ---------------------------------------------------------------------------------------------- valid files


def frame_of(rng, rows=9):
    frame = pd.DataFrame(
        {
            "width": rng.standard_normal(rows),
            "count": rng.integers(-5, 1000, rows).astype(float),
            "colour": rng.choice(["red", "light blue", "it's, well", 'a "b" c', "Ωμέγα"], rows),
            "code": [f"{k:03d}" for k in rng.integers(0, 900, rows)],
            "kind": rng.choice(["a", "b", "c"], rows),
        }
    )
    frame.loc[rng.integers(rows), "width"] = np.nan
    frame.loc[rng.integers(rows), "colour"] = None
    return frame


def valid_csv(rng):
    how = rng.integers(5)
    frame = frame_of(rng)
    if how == 0:
        return frame.to_csv(index=False).encode()
    if how == 1:
        return frame.to_csv(index=False, sep=";", decimal=",").encode()
    if how == 2:
        return frame.to_csv(index=False, sep="\t", quoting=1, lineterminator="\r\n").encode()
    numbers = pd.DataFrame(rng.standard_normal((9, 4)).round(int(rng.integers(1, 8)))).assign(y=rng.integers(0, 2, 9))
    return numbers.to_csv(index=False, header=how == 3, sep="," if rng.integers(2) else " ").encode()


def valid_arff(rng):
    frame = frame_of(rng)

    def quoted(value):
        if isinstance(value, float):
            return "?" if np.isnan(value) else repr(value)
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return "?" if value is None or value != value else f"'{escaped}'"

    levels = ", ".join(map(quoted, sorted(set(frame["colour"].dropna()))))
    head = (
        "% made up\n@relation fuzz\n@attribute width numeric\n@attribute count real\n"
        f"@attribute colour {{{levels}}}\n@attribute code string\n@attribute 'kind of' {{a, b, c}}\n@data\n"
    )
    rows = list(frame.itertuples(index=False))
    if rng.integers(2):
        return (head + "".join(",".join(map(quoted, row)) + "\n" for row in rows)).encode()
    lines = []
    for row in rows:
        kept = [k for k in range(5) if k == 3 or rng.integers(2)]
        lines.append("{" + ", ".join(f"{k} {quoted(row[k])}" for k in kept) + "}\n")
    return (head + "".join(lines)).encode()


def valid_svm(rng):
    lines = []
    for label in rng.choice([-1, 1], 9):
        columns = np.sort(rng.choice(30, 4, replace=False)) + rng.integers(2)
        lines.append(f"{label} " + " ".join(f"{k}:{value:.6g}" for k, value in zip(columns, rng.standard_normal(4))))
    return ("\n".join(lines) + "\n# the end\n").encode()


def valid_arrays(rng):
    """Return the members of an NPZ file, of any number types."""
    numbers = rng.choice(
        ["f8", "f4", "f2", "g", "i8", "u8", "i1", "?", ">f8", ">i4", "c16", "M8[s]"], p=[0.3, *[0.7 / 11] * 11]
    )
    X = (10 * rng.standard_normal((6, 3))).astype(np.int64).astype(numbers)
    labels = rng.choice(["i8", "u8", "f8", "g", "?", "U3", "S3", ">U2", "O"])
    arrays = {"y": np.array([0, 1, 0, 1, 1, 0]).astype(labels), "train": [[0, 1]], "test": [[2, 3]]}
    if rng.integers(2):
        return {**arrays, "X": np.asfortranarray(X) if rng.integers(2) else X, "feature_names": np.array(list("abc"))}
    stored = sp.csr_matrix(rng.integers(0, 3, (6, 4)))
    index = rng.choice(["i4", "i8", "u8", "f8"])
    parts = {"data": stored.data, "indices": stored.indices.astype(index), "indptr": stored.indptr, "shape": [6, 4]}
    return {**arrays, **parts}


def valid_npz(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = valid_arrays(rng)
    parts = {}
    for key, values in arrays.items():
        member = io.BytesIO()
        np.lib.format.write_array(member, np.asarray(values), allow_pickle=True)
        parts[key] = member.getvalue()
    if rng.random() < 0.7:  # damage within a member, whose checksum then is right
        key = rng.choice(sorted(parts))
        parts[key] = damaged_npy(parts[key], rng)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED if rng.integers(2) else zipfile.ZIP_STORED) as archive:
        for key, content in parts.items():
            archive.writestr(f"{key}.npy", content)
    return packed.getvalue()


def damaged_npy(content, rng):
    """Return an NPY file with another header, whose length is right, or with random changes."""
    how = rng.integers(4)
    if how == 3:
        return mutated(content, rng, ())
    end = 10 + int.from_bytes(content[8:10], "little")
    header = content[10:end]
    if how == 0:
        header = re.sub(rb"\([^)]*\)", rng.choice(SHAPES).encode(), header, count=1)
    elif how == 1:
        header = re.sub(rb"'[<>|][^']*'", rng.choice(DTYPES).encode(), header, count=1)
    else:
        header = header.replace(b"False", b"True", 1)
    return content[:8] + len(header).to_bytes(2, "little") + header + content[end:]


def valid_parquet(rng):
    packed = io.BytesIO()
    typed_frame(rng).to_parquet(packed, compression=rng.choice(["snappy", "gzip", "none"]))
    return packed.getvalue()


def valid_feather(rng):
    packed = io.BytesIO()
    typed_frame(rng).to_feather(packed, compression=rng.choice(["lz4", "zstd", "uncompressed"]))
    return packed.getvalue()


def typed_frame(rng):
    frame = frame_of(rng)
    frame["whole"] = rng.integers(0, 2**62, len(frame)).astype(rng.choice(["int64", "uint64", "int16"]))
    frame["flag"] = rng.integers(0, 2, len(frame)).astype(bool)
    frame["half"] = frame["width"].astype(rng.choice(["float32", "float64", "Float64"]))
    frame["day"] = pd.Timestamp("2020-01-01")
    frame["colour"] = frame["colour"].astype(rng.choice(["object", "category", "string"]))
    return frame


VALID = {
    "csv": valid_csv, "arff": valid_arff, "npz": valid_npz, "parquet": valid_parquet, "feather": valid_feather,
    "svm": valid_svm,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- mutation


def mutated(content, rng, tokens):
    """Return bytes with a few random changes, mostly one; ``tokens`` are texts worth inserting."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        at = int(rng.integers(len(content) + 1))
        how = rng.integers(10)
        token = tokens[rng.integers(len(tokens))].encode() if tokens else bytes(rng.integers(0, 256, 1, dtype=np.uint8))
        if how < 3:
            content[at : at + int(rng.integers(2)) * len(token)] = token
        elif how < 6 and tokens:  # instead of a whole field
            before = re.search(rb"[^,;:\s]*$", content[:at])
            after = re.match(rb"[^,;:\s]*", content[at:])
            content[before.start() : at + after.end()] = token
        elif how == 6 and at < len(content):
            content[at] ^= int(rng.integers(1, 256))
        elif how == 7:
            del content[at : at + int(rng.integers(1, 12))]
        elif how == 8:
            other = int(rng.integers(len(content) + 1))
            content[at:at] = content[other : other + int(rng.integers(1, 30))]
        elif how == 9 and rng.integers(4) == 0:
            del content[at:]
        elif at < len(content):
            content[at] = int(rng.integers(32, 127))
    return bytes(content)


def mutant(kind, seed, number):
    """Return the bytes of one mutant."""
    rng = np.random.default_rng([seed, sorted(SHARES).index(kind), number])
    content = VALID[kind](rng)
    if kind == "npz" and rng.random() < 0.5:
        return content
    return mutated(content, rng, TOKENS if kind in ("csv", "arff", "svm") else ())


# ---------------------------------------------------------------------------------------------- references


class NotReadError(Exception):
    """The reference refuses the file, or reads it as something that cannot be compared."""


def columns_of(data):
    """Return our table as lists: floats, or text with None where it is missing."""
    if isinstance(data.X, pd.DataFrame):
        return [
            column.to_numpy()
            if column.dtype.kind == "f"
            else column.astype(object).where(column.notna(), None).tolist()
            for _, column in data.X.items()
        ]
    dense = data.X.toarray() if sp.issparse(data.X) else data.X
    return list(dense.T)


def same_numbers(ours, theirs):
    return np.array_equal(np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float), equal_nan=True)


def as_written(value, note):
    """Return the number that a text with signs and thousands stands for, in the manner of a note; obvious and slow."""
    if value in MISSING_NUMBERS:
        return np.nan
    kept = re.sub("[^0-9.,+-]", "", value)
    if "decimal commas" in note:
        kept = kept.replace(".", "").replace(",", ".")
    return float(kept.replace(",", ""))


def compare_csv(path, data):
    notes = " ".join(data.notes)
    comments = re.search(r"(\d+) lines? of comment at the top", notes)
    n_comments = int(comments[1]) if comments else 0
    content = path.read_bytes()
    if "was read as UTF-16" in notes or "holds dates" in notes:
        raise NotReadError
    delimiter = _sniff_delimiter(content.removeprefix(BOM).split(b"\n", n_comments)[-1][: 1 << 16])
    options = {
        "sep": r"\s+" if delimiter == BLANKS else delimiter.decode(),
        "header": None if any("first line was taken as data" in note for note in data.notes) else 0,
        "skipinitialspace": True,
        "index_col": False,
        "encoding": "cp1252" if "read as cp1252" in notes else "utf-8-sig",
        "skiprows": n_comments,
        "keep_default_na": False,
        "float_precision": "round_trip",  # before version 3.1 pandas' own rounds some last digits wrongly
    }
    try:
        text = pd.read_csv(path, dtype=str, na_filter=False, **options)
        typed = [pd.read_csv(path, na_values=sorted(MISSING_NUMBERS), **options)]
        if any("Commas within numbers" in note for note in data.notes):
            typed.append(pd.read_csv(path, na_values=sorted(MISSING_NUMBERS), decimal=",", **options))
    except Exception as error:
        raise NotReadError from error
    columns = columns_of(data)
    if text.shape != (len(columns[0]), len(columns)):
        return f"{text.shape} rows and columns, not {(len(columns[0]), len(columns))}"
    for k, ours in enumerate(columns):
        spelled = [value.strip(" \t") for value in text.iloc[:, k].astype(object)]
        if isinstance(ours, list):
            expected = [None if value in MISSING else value for value in spelled]
            if ours != expected:
                return f"column {k}: {first_difference(ours, expected)}"
            continue
        said = [note for note in data.notes if note.startswith(f"The column {data.feature_names[k]!r} was read as num")]
        if said:
            if not same_numbers(ours, [as_written(value, said[0]) for value in spelled]):
                return f"column {k}: {first_difference(ours, spelled)}"
            continue
        candidates = [frame.iloc[:, k] for frame in typed]
        if any(theirs.dtype.kind in "iuf" and same_numbers(ours, theirs) for theirs in candidates):
            continue
        expected = [
            np.nan if value in MISSING_NUMBERS else float(value) if NUMBER.fullmatch(value) else None
            for value in spelled
        ]
        if None in expected or not same_numbers(ours, expected):
            return f"column {k}: {first_difference(ours, spelled)}"
    return None


def first_difference(ours, theirs):
    pairs = ((a, b) for a, b in zip(ours, theirs) if str(a) != str(b))
    return "{!r}, not {!r}".format(*next(pairs, ("nothing", "nothing")))


def compare_arff(path, data):
    import arff

    try:
        theirs = arff.loads(path.read_bytes().decode("utf-8-sig"))
    except Exception as error:
        raise NotReadError from error
    columns, kinds = columns_of(data), [kind for _, kind in theirs["attributes"]]
    if len(theirs["data"]) != len(columns[0]) or len(kinds) != len(columns):
        return f"{len(theirs['data'])} rows of {len(kinds)}, not {len(columns[0])} of {len(columns)}"
    for k, ours in enumerate(columns):
        expected = [row[k] for row in theirs["data"]]
        if isinstance(ours, list):
            expected = [None if value == "<null>" else value for value in expected]
            expected = [a if b is None and a and a.isspace() else b for a, b in zip(ours, expected)]
            same = ours == expected
        else:
            ours = np.trunc(ours) if kinds[k] == "INTEGER" else ours
            same = same_numbers(ours, [np.nan if value in (None, "<null>") else value for value in expected])
        if not same:
            return f"column {k}: {first_difference(ours, expected)}"
    return None


def compare_npz(path, data):
    with np.load(path, allow_pickle=False) as stored:
        if "X" in stored:
            X, ours = stored["X"], data.X
        else:
            parts = stored["data"], stored["indices"], stored["indptr"]
            X, ours = sp.csr_matrix(parts, shape=stored["shape"]).toarray(), data.X.toarray()
        if not (X.shape == ours.shape and np.array_equal(ours, X.astype(np.float64), equal_nan=X.dtype.kind == "f")):
            return "another X"
        if data.y.tolist() != stored["y"].tolist() or data.y.dtype not in (
            np.int64,
            np.float64,
            stored["y"].dtype.newbyteorder("="),
        ):
            return f"another y: {data.y!r}, not {stored['y']!r}"
        pairs = zip(stored["train"].tolist(), stored["test"].tolist()) if "train" in stored and "test" in stored else ()
        ours = [(train.tolist(), test.tolist()) for train, test in data.splits or ()]
        return None if ours == list(pairs) else "other splits"


def compare_parquet(path, data):
    return compare_table(parquet.read_table, path, data)


def compare_feather(path, data):
    return compare_table(feather.read_table, path, data)


def compare_table(read, path, data):
    try:
        theirs = read(path).to_pandas(ignore_metadata=True)
    except Exception as error:
        raise NotReadError from error
    columns = dict(zip(data.feature_names, columns_of(data)))
    for name, column in theirs.items():
        kind = getattr(column.dtype, "kind", "O")
        if kind == "M" and f"{name} (days since 1970)" in columns:
            ours, days = columns[f"{name} (days since 1970)"], column.astype("datetime64[s]").astype("int64") / 86400
            if not same_numbers(ours, days.where(column.notna())):
                return f"column {name!r}: other dates"
            continue
        if name not in columns:
            if kind in "iufb":
                return f"no column {name!r}"
            continue
        ours = columns[name]
        if isinstance(ours, list):
            same = ours == column.astype(object).where(column.notna(), None).tolist()
        else:
            same = same_numbers(ours, column.astype("float64"))
        if not same:
            return f"column {name!r}: {first_difference(ours, column.tolist())}"
    return None


def compare_svm(path, data):
    zero_based = any("start at 0" in note for note in data.notes)
    try:
        X, y = load_svmlight_file(str(path), zero_based=zero_based, n_features=data.X.shape[1])
    except Exception as error:
        raise NotReadError from error
    if X.shape != data.X.shape or (X != data.X).nnz:
        return "another X"
    return None if data.y is None or np.array_equal(y, data.y) else "another y"


COMPARE = {
    "csv": compare_csv, "arff": compare_arff, "npz": compare_npz, "parquet": compare_parquet,
    "feather": compare_feather, "svm": compare_svm,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- running


def judge(kind, path):
    """Return what became of one mutant, and a sentence if that is a failure."""
    try:
        with limited(2 * LONGEST):
            data = read_file(path) if kind == "npz" else read_file(path, target=False)
    except DataError as error:
        sentence = str(error)
        return "refused", f"not one line: {sentence!r}" if "\n" in sentence or not sentence else None
    except TooLongError:
        return "failed", "hangs"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            difference = COMPARE[kind](path, data)
    except NotReadError:
        return "read by us alone", None
    except Exception as error:
        return "failed", f"cannot be compared: {type(error).__name__}: {error}"
    return ("failed", difference) if difference else ("the same values", None)


def run(kind, numbers, seed, folder):
    """Judge the mutants of these numbers; return a Tally."""
    tally = Tally()
    path = Path(folder) / f"mutant.{kind}"
    for number in numbers:
        path.write_bytes(mutant(kind, seed, number))
        peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        outcome, failure = judge(kind, path)
        seconds = time.process_time() - start
        megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
        if seconds > LONGEST and number != numbers[0]:  # the first may compile
            failure = failure or f"{seconds:.1f} s"
        if megabytes > MOST_MEGABYTES:
            failure = failure or f"{megabytes:.0f} MB"
        tally.counts["failed" if failure else outcome] += 1
        tally.slowest, tally.megabytes = max(tally.slowest, seconds), max(tally.megabytes, megabytes)
        if failure:
            tally.failures.append((number, failure))
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=620, help="of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=SHARES, help="one format alone")
    parser.add_argument("--only", type=int, help="one mutant of that format; it is printed")
    options = parser.parse_args()
    kinds = {options.format: 1} if options.format else SHARES
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for kind, share in kinds.items():
            count = options.mutants * share // sum(kinds.values())
            numbers = range(count) if options.only is None else [options.only]
            if options.only is not None:
                sys.stdout.buffer.write(mutant(kind, options.seed, options.only) + b"\n")
            tally = run(kind, numbers, options.seed, folder)
            for number, failure in tally.failures[:20]:
                print(f"{kind} {number}: {failure}")
            failed |= bool(tally.failures)
            outcomes = ("the same values", "refused", "read by us alone", "failed")
            rows.append(
                {
                    "format": kind,
                    "mutants": len(numbers),
                    **{outcome: tally.counts[outcome] for outcome in outcomes},
                    "slowest, s": tally.slowest,
                    "largest, MB": tally.megabytes,
                }
            )
    table("Mutated files", rows)
    sys.exit(failed)


if __name__ == "__main__":
    main()
