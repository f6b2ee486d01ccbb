r"""Stored values times rows of a matrix, several columns at a time in vector registers.

The product of a sparse row x with a matrix W is Σ_k x_k W[j_k], and its share in a sum of rows adds x_k v to row j_k,
each over as many neighbouring numbers as there are columns. Numba leaves neighbouring statements scalar, and of loops
with a dozen turns it spends most of the time on their ends. So both are written as what they are for the processor: a
stored value, repeated in all lanes, times four neighbouring numbers, three such fours at once where there are enough
columns. Sums stay in registers, in two sets, for an addition need not wait for the one before.

Compiled code calls :func:`gather` and :func:`spread`; the Python versions say what they do.
"""

import functools

import numpy as np

from margindist.compilation import overload

__all__ = ["LANES", "gather", "padded", "spread"]

LANES = 4  # columns come in multiples of
_AT_ONCE = 3  # times as many columns


def padded(W):
    """Return the array in float64 with columns of zeros added, up to a multiple of LANES."""
    wide = np.zeros((len(W), -(-W.shape[1] // LANES) * LANES))
    wide[:, : W.shape[1]] = W
    return wide


def gather(data, indices, begin, end, W, out):
    """Fill ``out`` with the sum of ``data[k]`` times row ``indices[k]`` of ``W``, from ``begin`` to ``end``.

    ``W`` is C-contiguous and padded, ``out`` as long as its rows are.
    """
    out[:] = data[begin:end] @ W[indices[begin:end]]


def spread(data, indices, begin, end, v, out):
    """Add ``data[k]`` times ``v`` to row ``indices[k]`` of ``out``, from ``begin`` to ``end``; they are like ``W``."""
    np.add.at(out, indices[begin:end], np.outer(data[begin:end], v))


@overload(gather)
def _compiled_gather(data, indices, begin, end, W, out):
    many, few = _instructions(_gather_lanes, _AT_ONCE), _instructions(_gather_lanes, 1)
    wide = _AT_ONCE * LANES

    def compiled(data, indices, begin, end, W, out):
        rest = len(out) - len(out) % wide
        for first in range(0, rest, wide):
            many(data, indices, begin, end, W, out, first)
        for first in range(rest, len(out), LANES):
            few(data, indices, begin, end, W, out, first)

    return compiled


@overload(spread)
def _compiled_spread(data, indices, begin, end, v, out):
    many, few = _instructions(_spread_lanes, _AT_ONCE), _instructions(_spread_lanes, 1)
    wide = _AT_ONCE * LANES

    def compiled(data, indices, begin, end, v, out):
        rest = len(v) - len(v) % wide
        for first in range(0, rest, wide):
            many(data, indices, begin, end, out, v, first)
        for first in range(rest, len(v), LANES):
            few(data, indices, begin, end, out, v, first)

    return compiled


@functools.cache
def _instructions(write, vectors):
    """Return a function for compiled code whose instructions ``write`` writes, for so many fours of columns."""
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def written(typing, data, indices, begin, end, matrix, vector, first):
        signature = types.void(data, indices, types.intp, types.intp, matrix, vector, types.intp)

        def generate(context, builder, signature, values):
            write(_Writer(context, builder, signature, values), vectors)
            return context.get_dummy_value()

        return signature, generate

    return written


class _Writer:
    """Writes instructions on stored values, a matrix and a vector, the arguments of :func:`_instructions`."""

    def __init__(self, context, builder, signature, values):
        from llvmlite import ir

        arrays = {k: context.make_array(signature.args[k])(context, builder, values[k]) for k in (0, 1, 4, 5)}
        self._ir, self._long = ir, ir.IntType(64)
        self._lanes = ir.VectorType(ir.DoubleType(), LANES)
        self._data, self._indices, self._matrix, self._vector = (arrays[k].data for k in (0, 1, 4, 5))
        self._stride = builder.extract_value(arrays[4].shape, 1)
        self.builder = builder
        self.begin, self.end, self._first = values[2], values[3], values[6]

    def number(self, value):
        """Return an integer."""
        return self._ir.Constant(self._long, value)

    def sums(self, count):
        """Return places for fours, zero at first, which become registers."""
        from numba.core import cgutils

        zeros = self._ir.Constant(self._lanes, [0.0] * LANES)
        return [cgutils.alloca_once_value(self.builder, zeros) for _ in range(count)]

    def each(self, begin, end, step=1):
        """Return a loop from ``begin`` to ``end``."""
        from numba.core import cgutils

        return cgutils.for_range_slice(self.builder, begin, end, self.number(step), inc=True)

    def value(self, k):
        """Return a stored value, repeated in all lanes."""
        double, short = self._ir.DoubleType(), self._ir.IntType(32)
        value = self.builder.load(self.builder.gep(self._data, [k]))
        if value.type != double:
            value = self.builder.fpext(value, double)
        nothing = self._ir.Constant(self._lanes, self._ir.Undefined)
        single = self.builder.insert_element(nothing, value, self._ir.Constant(short, 0))
        everywhere = self._ir.Constant(self._ir.VectorType(short, LANES), [0] * LANES)
        return self.builder.shuffle_vector(single, nothing, everywhere)

    def of_row(self, k, part):
        """Return the place of a four in the row of the matrix that belongs to a stored value."""
        row = self.builder.load(self.builder.gep(self._indices, [k]))
        if row.type != self._long:
            row = self.builder.zext(row, self._long)
        begin = self.builder.add(self.builder.mul(row, self._stride), self._first)
        return self._place(self._matrix, begin, part)

    def of_vector(self, part):
        """Return the place of a four in the vector."""
        return self._place(self._vector, self._first, part)

    def _place(self, array, begin, part):
        place = self.builder.gep(array, [self.builder.add(begin, self.number(part * LANES))])
        return self.builder.bitcast(place, self._lanes.as_pointer())

    def load(self, place):
        """Return the four there."""
        return self.builder.load(place, align=8)

    def store(self, four, place):
        """Write a four."""
        self.builder.store(four, place, align=8)

    def plus(self, first, second):
        """Return the sum."""
        return self.builder.fadd(first, second, flags=("contract",))

    def times(self, first, second):
        """Return the product, which one instruction may compute together with a sum."""
        return self.builder.fmul(first, second, flags=("contract",))


def _gather_lanes(writer, vectors):
    """Write the sum over stored values, of which even and odd ones have sums of their own."""
    even, odd = writer.sums(vectors), writer.sums(vectors)
    one = writer.number(1)

    def add(k, sums):
        value = writer.value(k)
        for part, place in enumerate(sums):
            product = writer.times(value, writer.load(writer.of_row(k, part)))
            writer.store(writer.plus(writer.load(place), product), place)

    count = writer.builder.sub(writer.end, writer.begin)
    pairs = writer.builder.sub(writer.end, writer.builder.and_(count, one))
    with writer.each(writer.begin, pairs, 2) as (k, _):
        add(k, even)
        add(writer.builder.add(k, one), odd)
    with writer.each(pairs, writer.end) as (k, _):
        add(k, even)
    for part in range(vectors):
        total = writer.plus(writer.load(even[part]), writer.load(odd[part]))
        writer.store(total, writer.of_vector(part))


def _spread_lanes(writer, vectors):
    """Write the addition of a vector times each stored value."""
    fours = [writer.load(writer.of_vector(part)) for part in range(vectors)]
    with writer.each(writer.begin, writer.end) as (k, _):
        value = writer.value(k)
        for part, four in enumerate(fours):
            place = writer.of_row(k, part)
            writer.store(writer.plus(writer.load(place), writer.times(value, four)), place)
