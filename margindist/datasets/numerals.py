"""What counts as a number in a file: ASCII digits, a point, an exponent; nothing that Python alone would accept.

Python's ``float`` also reads 1_000, Arabic and full-width digits, and numbers between control characters or unusual
spaces. In a file these are damage or text, and must not become numbers silently.
"""

import math
import re

import numpy as np
from numba import njit

__all__ = ["EXACT", "NO_NUMBER", "UNSURE", "read_number", "to_number"]

EXACT, UNSURE, NO_NUMBER = range(3)

_SMALLEST_POWER, _LARGEST_POWER = -342, 308
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -1074, 970  # of whole numbers of 53 bits
_MOST_DIGITS = 19  # fit a word

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


def to_number(text):
    """Return the number that a text spells, which may be infinite, or None where it spells none."""
    if _NUMBER.fullmatch(text) or (text.isascii() and _INFINITY.fullmatch(text)):
        return float(text)
    return None


def _powers_of_five():
    """Return the 128 leading bits of 5**q, as two words, for every power of ten that float64 can hold."""
    words = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(_SMALLEST_POWER, _LARGEST_POWER + 1)):
        if q >= 0:
            shift = 128 - (5**q).bit_length()
            leading = 5**q << shift if shift >= 0 else 5**q >> -shift
        else:
            bits = (5**-q).bit_length()
            leading = (1 << bits + 127 if q >= -27 else 1 << 2 * bits + 128) // 5**-q + 1
            leading >>= max(leading.bit_length() - 128, 0)
        words[row] = leading >> 64, leading & 0xFFFFFFFFFFFFFFFF
    return words


_FIVES = _powers_of_five()
_TENS = np.array([10.0**k for k in range(23)])  # exact in float64


@njit(cache=True, nogil=True)
def _product(a, b):
    """Return the upper and the lower word of the product of two words."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    low, middle = a_low * b_low, a_high * b_low
    other = a_low * b_high
    carry = (low >> half) + (middle & mask) + (other & mask)
    return a_high * b_high + (middle >> half) + (other >> half) + (carry >> half), a * b


@njit(cache=True, nogil=True)
def _leading_zeros(word):
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == np.uint64(0):
            word <<= np.uint64(step)
            zeros += step
    return zeros


@njit(cache=True, nogil=True)
def _round(mantissa, power):
    """Return mantissa * 10**power, correctly rounded, and whether that is certain; mantissa > 0.

    Eisel and Lemire's algorithm: the mantissa times the leading bits of 5**power, of which the upper 55 bits decide.
    What is below the normal range, above the largest number or left open is for the caller to ask Python.

    References
    ----------
    D. Lemire, "Number parsing at a gigabyte per second", Software: Practice and Experience 51 (2021).
    """
    one = np.uint64(1)
    if mantissa >> np.uint64(53) == np.uint64(0) and -22 <= power <= 22:  # both exact, and so is the rounding
        return np.float64(mantissa) * _TENS[power] if power >= 0 else np.float64(mantissa) / _TENS[-power], True
    if power < _SMALLEST_POWER or power > _LARGEST_POWER:
        return 0.0, False
    zeros = _leading_zeros(mantissa)
    mantissa <<= np.uint64(zeros)
    row = power - _SMALLEST_POWER
    upper, lower = _product(mantissa, _FIVES[row, 0])
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = _product(mantissa, _FIVES[row, 1])
        lower += more
        upper += np.uint64(lower < more)
    if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= power <= 55:
        return 0.0, False
    top = upper >> np.uint64(63)
    shift = top + np.uint64(9)
    digits = upper >> shift
    exponent = ((217706 * power) >> 16) + 11 + np.int64(top) - zeros
    if lower <= one and -4 <= power <= 23 and digits & np.uint64(3) == one and digits << shift == upper:
        digits &= ~one  # halfway between two numbers: the even one
    digits = (digits + (digits & one)) >> one
    if not _SMALLEST_EXPONENT < exponent < _LARGEST_EXPONENT:
        return 0.0, False
    return math.ldexp(np.float64(digits), exponent), True


@njit(cache=True, nogil=True)
def read_number(text, start, end, point):
    """Read the number at the start of text[start:end], whose decimal point is the byte ``point``.

    Return its value, where it ends, whether it is EXACT, UNSURE (only Python's own conversion is certain to round
    correctly) or NO_NUMBER, and whether it has a decimal point.
    """
    position = start
    negative = False
    if position < end and (text[position] == 43 or text[position] == 45):
        negative = text[position] == 45
        position += 1
    mantissa, digits, power, seen, long = np.uint64(0), 0, 0, False, False
    fraction = False
    while position < end:
        byte = text[position]
        if 48 <= byte <= 57:
            seen = True
            if digits < _MOST_DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                digits += mantissa > np.uint64(0)
                power -= fraction
            else:
                long = True
                power += not fraction
        elif byte == point and not fraction:
            fraction = True
        else:
            break
        position += 1
    if not seen:
        return 0.0, position, NO_NUMBER, fraction
    if position < end and (text[position] == 101 or text[position] == 69):
        position += 1
        down = False
        if position < end and (text[position] == 43 or text[position] == 45):
            down = text[position] == 45
            position += 1
        exponent, any_digit = 0, False
        while position < end and 48 <= text[position] <= 57:
            any_digit = True
            exponent = min(exponent * 10 + np.int64(text[position] - 48), 100000)
            position += 1
        if not any_digit:
            return 0.0, position, NO_NUMBER, fraction
        power += -exponent if down else exponent
    if long:
        return 0.0, position, UNSURE, fraction
    value, certain = 0.0, True
    if mantissa > np.uint64(0):
        value, certain = _round(mantissa, power)
    return -value if negative else value, position, EXACT if certain else UNSURE, fraction
