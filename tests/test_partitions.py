"""Rows in partitions: the reduction, the places and the driver."""

import numpy as np
import pytest
import scipy.sparse as sp

from margindist.spaces import partitions
from margindist.spaces.partitions import (
    Encoder,
    Encoding,
    Loaded,
    LocalPlace,
    PartsLost,
    Piece,
    Round,
    Survey,
    Tree,
    drive,
)
from margindist.spaces.rows import as_rows, n_rows


class Toy:
    """Keeps margins beside the rows."""

    rowless = {"spread"}

    def __init__(self, rows, targets, weights, scale):
        self.weights, self.scale, self.z = weights, scale, np.zeros(n_rows(rows))

    def score(self, rows, w):
        self.z = self.scale * (rows.X @ w)
        return {
            "total": self.weights @ self.z,
            "least_min": self.z.min(),
            "most_max": self.z.max(),
            "sizes": [len(self.z)],
        }

    def spread(self, rows, mean):
        assert rows is None
        return {"square": self.weights @ (self.z - mean) ** 2}


def rounds(w):
    first = yield Round("score", (w,), coef=w)
    second = yield Round("spread", (first["total"] / sum(first["sizes"]),))
    return first, second


def loader(X, sizes):
    edges = np.concatenate([[0], np.cumsum(sizes)])

    def load(i):
        piece = slice(edges[i], edges[i + 1])
        return Loaded(as_rows(X[piece]), np.ones(sizes[i]), np.ones(sizes[i]))

    return load


def test_the_tree_has_the_same_bits_in_any_order_and_from_any_workers(rng):
    for n in (1, 2, 3, 5, 8, 13, 50):
        records = [
            None if i % 4 == 3 else {"sum": rng.normal(size=3) * 10.0**i, "low_min": rng.normal()} for i in range(n)
        ]
        whole = Tree(n)
        for i, record in enumerate(records):
            whole.add(i, record)
        for n_workers in (1, 2, 3):
            owner = rng.integers(n_workers, size=n)
            together = Tree(n)
            for worker in rng.permutation(n_workers):
                mine = Tree(n)
                for i in rng.permutation(np.flatnonzero(owner == worker)):
                    mine.add(int(i), records[i])
                together.include(mine.nodes)
            assert np.array_equal(together.result()["sum"], whole.result()["sum"])
            assert together.result()["low_min"] == min(r["low_min"] for r in records if r)


def test_a_tree_holds_few_records_and_knows_when_some_are_missing():
    tree = Tree(64)
    for i in range(63):
        tree.add(i, {"sum": 1})
        assert len(tree.nodes) <= 6
    with pytest.raises(ValueError, match="expected records of 64 partitions"):
        tree.result()
    tree.add(63, {"sum": 1})
    assert tree.result() == {"sum": 64}


@pytest.mark.parametrize("read_ahead", [0, 1])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_problems_share_their_sweeps_and_threads_change_no_bit(rng, n_jobs, read_ahead):
    X, sizes, loads = rng.normal(size=(40, 3)), [7, 0, 20, 1, 12], []
    load = loader(X, sizes)
    place = LocalPlace(lambda i: (loads.append(i), load(i))[1], 5, n_jobs=n_jobs, read_ahead=read_ahead)
    ws = [rng.normal(size=3), rng.normal(size=3)]
    found = drive(place, Toy, [(1.0,), (2.0,)], lambda k, start: rounds(ws[k]))
    assert sorted(loads) == list(range(5))  # one sweep for both problems; the second round needs no rows
    serial = drive(LocalPlace(load, 5), Toy, [(1.0,), (2.0,)], lambda k, start: rounds(ws[k]))
    for k, (first, second) in enumerate(found):
        z = (k + 1.0) * (X @ ws[k])
        assert first["total"] == pytest.approx(z.sum())
        assert (first["least_min"], first["most_max"]) == (z.min(), z.max())
        assert first["sizes"] == [7, 20, 1, 12]
        assert second["square"] == pytest.approx(((z - z.mean()) ** 2).sum())
        assert (first, second) == serial[k]
    place.close()


def test_lost_parts_are_opened_again_and_the_solver_starts_from_its_last_coefficients(rng):
    X = rng.normal(size=(10, 3))
    place = LocalPlace(loader(X, [5, 5]), 2)
    run, calls, starts = place.run, [], []

    def fail_once(requests):
        calls.append(requests)
        if len(calls) == 2:
            raise PartsLost
        return run(requests)

    place.run = fail_once

    def begin(k, start):
        starts.append(start)
        return rounds(np.ones(3) if start is None else start)

    ((first, _),) = drive(place, Toy, [(1.0,)], begin)
    assert starts[0] is None
    assert np.array_equal(starts[1], np.ones(3))
    assert first["total"] == pytest.approx(X.sum())


def test_rows_in_memory_are_cut_by_their_shape_alone(rng, monkeypatch):
    monkeypatch.setattr(partitions, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(partitions, "_FEWEST_VALUES", 30)
    X, w = rng.normal(size=(31, 4)), rng.normal(size=4)
    found = []
    for n_jobs in (1, 2):
        place = partitions.in_memory(as_rows(X), np.ones(31), np.ones(31), n_jobs)
        assert place.n_partitions == 4
        found += drive(place, Toy, [(1.0,)], lambda k, start: rounds(w))
        place.close()
    assert found[0] == found[1]
    assert partitions.in_memory(as_rows(X[:9]), np.ones(9), np.ones(9)).n_partitions == 1


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_the_encoder_makes_codes_and_drops_rows_of_weight_zero(rng, form):
    X, y = rng.normal(size=(6, 2)), np.array(list("abcabc"))
    pieces = [Piece(form(X[:4]), y[:4]), Piece(form(X[4:]), y[4:], [0.0, 2.0])]
    place = LocalPlace(load := Encoder(pieces.__getitem__), 2)
    place.open(Survey, [()])
    (found,) = place.run([(0, Round("look"))])
    assert (found["rows"], found["columns_min"], found["columns_max"]) == (5, 2, 2)
    assert [labels.tolist() for labels, _ in found["labels"]] == [["a", "b", "c"], ["c"]]
    place.encode(Encoding(np.array(list("abc")), np.array([1.0, 0.0, 3.0]), fit_intercept=True))
    first, second = load(0), load(1)
    assert first.targets.tolist() == [0, 2, 0]
    assert first.weights.tolist() == [1.0, 3.0, 1.0]
    assert second.weights.tolist() == [6.0]
    assert first.rows.bias == 1.0


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (
            Piece(np.array([[1.0, 2.0], [1.0, np.nan]]), [0, 1]),
            "partition 7: expected finite numbers, got nan in row 1, column 1",
        ),
        (Piece(sp.csr_matrix([[0.0, 2.0], [0.0, np.inf]]), [0, 1]), "got inf in row 1, column 1"),
        (Piece(np.ones((2, 2)), [0, 1, 1]), "one of the labels per row"),
        (Piece(np.ones((2, 2)), [0, 1], [1.0]), "one of the sample weights per row"),
        (Piece(np.ones((2, 2)), [0, 1], [1.0, -1.0]), "none negative"),
        (Piece(np.ones(2), [0, 1]), "array of 1 dimensions"),
        (Piece(np.array([["a"], ["b"]]), [0, 1]), "encode text"),
    ],
)
def test_the_encoder_names_the_partition_that_is_wrong(piece, message):
    with pytest.raises(ValueError, match=message):
        Encoder(lambda i: piece)(7)
