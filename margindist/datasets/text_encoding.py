"""Text that is not UTF-8: UTF-16 and cp1252 recognised, others by name; readers get UTF-8 and count lines as before."""

import codecs
import io

from margindist.datasets.dataset import DataError
from margindist.suggestions import did_you_mean

_COMMON = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1", "iso8859-15", "cp1250", "cp1251",
           "cp437", "cp850", "mac-roman", "koi8-r", "shift_jis", "euc-jp", "gb18030", "big5", "euc-kr")  # fmt: skip
_CHUNK = 1 << 20


def recognised(head):
    """Return the encoding that the first bytes show, None for UTF-8 or what only the rest can tell."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [head[k::2].count(0) for k in (0, 1)]
    half = len(head) // 2
    if zeros[1] > 0.4 * half and not zeros[0]:
        return "utf-16-le"
    return "utf-16-be" if zeros[0] > 0.4 * half and not zeros[1] else None


def checked(encoding, name):
    """Return the name of a text encoding as Python has it; raise an error if there is none."""
    try:
        "".encode(encoding)
        return codecs.lookup(encoding).name
    except LookupError:
        meant = did_you_mean(encoding, _COMMON, "Python's standard encodings are known, such as utf-8, utf-16, cp1252.")
        raise DataError(f"{name}: there is no encoding {encoding!r}; {meant}") from None


def is_cp1252(opened):
    """Tell whether text that is not UTF-8 is plausible as cp1252, the encoding of Western European Windows.

    It is not if a part of it is UTF-8 beyond ASCII, for then a few bytes are damaged, nor if it has bytes that
    cp1252 lacks.
    """
    as_utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    try:
        with opened() as file:
            while chunk := file.read(_CHUNK):
                chunk.decode("cp1252")
                text = as_utf8.decode(chunk)
                if any(letter > "\x7f" and not "\udc80" <= letter <= "\udcff" for letter in set(text)):
                    return False
    except UnicodeDecodeError:
        return False
    return True


def recoded(opened, encoding, name):
    """Return a function that opens the file as UTF-8, whatever its own encoding is."""
    return lambda: io.BufferedReader(_Recoded(opened(), encoding, name), _CHUNK)


class _Recoded(io.RawIOBase):
    """An open file of bytes in some encoding, read as UTF-8."""

    def __init__(self, file, encoding, name):
        self._file, self._encoding, self._name = file, encoding, name
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""
        self._lines = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        ended = False
        while not self._pending and not ended:
            chunk = self._file.read(_CHUNK)
            ended = not chunk
            try:
                text = self._decoder.decode(chunk, ended)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self._name}: the text is not {self._encoding} ({error.reason}, after line {self._lines}); name "
                    "its encoding, or save it as UTF-8."
                ) from None
            self._lines += text.count("\n")
            self._pending = text.encode("utf-8", "surrogatepass")
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def close(self):
        self._file.close()
        super().close()
