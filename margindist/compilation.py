"""Compiled code on demand: Numba is imported when a compiled function is first called, not when a module is.

Importing Numba and preparing it for a first call takes most of a second, longer than any small problem, which needs
neither: few dense rows are handled by NumPy (:mod:`margindist.spaces.rows`). :func:`njit` and :func:`overload` are
Numba's, for all modules of this package; they note what is asked for, and ask Numba for it as late as possible.
"""

import functools
import os
import sys
import threading
import warnings

__all__ = ["Compiled", "assign", "njit", "overload", "read_only"]

_lock = threading.RLock()
_waiting = []  # what Numba will be told; None when it is there


class Compiled:
    """A function that Numba compiles, or takes from its cache, when it is called; compiled functions may call it too.

    Parameters
    ----------
    function : callable
    options : dict
        Of :func:`numba.njit`.
    """

    def __init__(self, function, options):
        functools.update_wrapper(self, function)
        self.py_func = function
        self._options = options

    def __call__(self, *args):
        """Call the compiled function.

        A signal that comes meanwhile is answered when Numba takes numbers back from the machine. What the answer
        raises, as Ctrl-C does, Python then finds beside a result, and hides it in an error of its own.
        """
        try:
            return self.dispatcher(*args)
        except SystemError as hiding:
            error = hiding
            while isinstance(error, SystemError) and error.__cause__ is not None:
                error = error.__cause__
            raise error from None

    @functools.cached_property
    def dispatcher(self):
        """Numba's object for the function."""
        with _lock:  # threads that come together must not compile twice
            if "dispatcher" in vars(self):
                return vars(self)["dispatcher"]
            made = self._made()
            if hasattr(sys, "ps1") and lacks_file(made):
                _announce()
            return made

    def _made(self):
        """Return Numba's object for the function, which goes on without a cache where none can be read or written."""
        njit = _numba().njit
        if not self._options.get("cache"):
            return njit(**self._options)(self.py_func)
        try:
            made = njit(**self._options)(self.py_func)
        except RuntimeError as error:  # there is no place for one
            _say_not_kept(error)
            return njit(**{**self._options, "cache": False})(self.py_func)
        made._cache = _ForgivingCache(made._cache)
        return made

    def __reduce__(self):
        return self.__qualname__  # by its name, as functions are pickled


class _ForgivingCache:
    """Numba's cache of one function: what it cannot read is compiled anew, what it cannot write is not kept.

    A process that is killed, or a disk that is full, may leave any part of a file.
    """

    def __init__(self, cache):
        self._cache = cache

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def load_overload(self, *args):
        """Return compiled code from the file, or None."""
        try:
            return self._cache.load_overload(*args)
        except Exception:  # half a pickle may raise anything
            return None

    def save_overload(self, *args):
        """Write compiled code to the file, which begins anew if it is damaged."""
        try:
            self._cache.save_overload(*args)
        except OSError as error:
            _say_not_kept(error)
        except Exception:  # of half a pickle, again
            self._cache.flush()
            self._cache.save_overload(*args)


@functools.cache
def _say_once(sentence):
    warnings.warn(sentence, UserWarning, stacklevel=2)


def _say_not_kept(error):
    """Say once that the next process will compile again."""
    _say_once(
        "margindist: expected a folder in which compiled code can be kept, found none that can be written "
        f"({type(error).__name__}), so every process compiles anew; set the environment variable NUMBA_CACHE_DIR."
    )


def njit(**options):
    """Compile a function when it is first called; see :func:`numba.njit`."""
    return functools.partial(Compiled, options=options)


@njit(cache=True, nogil=True)
def assign(target, source):
    """Copy a vector into another one; ``target[:] = source`` takes Numba three seconds, for its error message."""
    for i in range(len(target)):
        target[i] = source[i]


def overload(function, **options):
    """Give compiled code its version of a Python function; see :func:`numba.extending.overload`."""

    def register(choose):
        _tell_numba(functools.partial(_overload, function, choose, options))
        return choose

    return register


def read_only(named_tuple):
    """Let compiled code see all arrays of a class of named tuples as read-only, so that it is compiled once for both.

    The rows that processes share are read-only, those of a first fit are not.
    """
    _tell_numba(functools.partial(_type_as_read_only, named_tuple))
    return named_tuple


def lacks_file(dispatcher):
    """Tell whether a function that Numba keeps on disk has not been compiled yet; False if that is unknown."""
    file = getattr(getattr(getattr(dispatcher, "_cache", None), "_cache_file", None), "_index_path", None)
    return isinstance(file, str) and not os.path.exists(file)


@functools.cache
def _announce():
    """Say once to somebody who waits at a prompt what they wait for."""
    print("margindist: compiling, once, for some seconds; `margindist warm-up` does it ahead.", file=sys.stderr)


def _tell_numba(something):
    """Call a function when Numba is there."""
    with _lock:
        if _waiting is None:
            something()
        else:
            _waiting.append(something)


def _overload(function, choose, options):
    from numba.extending import overload

    overload(function, **options)(choose)


def _type_as_read_only(named_tuple):
    from numba.core import types
    from numba.extending import typeof_impl

    @typeof_impl.register(named_tuple)
    def _(values, context):
        result = [typeof_impl(value, context) for value in values]
        result = [each.copy(readonly=True) if isinstance(each, types.Array) else each for each in result]
        return types.BaseTuple.from_types(result, named_tuple)


@functools.cache
def _numba():
    """Import Numba, and tell it what compiled functions refer to."""
    global _waiting
    with _lock:
        import numba
        from numba.extending import typeof_impl

        @typeof_impl.register(Compiled)
        def _(function, context):
            return numba.types.Dispatcher(function.dispatcher)

        for tell in _waiting or ():
            tell()
        _waiting = None
        return numba
