"""Compiled code on demand: Numba is imported when a compiled function is first called, not when a module is.

Importing Numba and preparing it for a first call takes most of a second, longer than any small problem, which needs
neither: few dense rows are handled by NumPy (:mod:`margindist.spaces.rows`). :func:`njit` and :func:`overload` are
Numba's, for all modules of this package; they note what is asked for, and ask Numba for it as late as possible.
"""

import functools
import os
import sys
import threading

__all__ = ["Compiled", "njit", "overload"]

_lock = threading.RLock()
_registrations = []  # what waits for Numba; None when it is there


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
        """Call the compiled function."""
        return self.dispatcher(*args)

    @functools.cached_property
    def dispatcher(self):
        """Numba's object for the function."""
        with _lock:  # threads that come together must not compile twice
            if "dispatcher" in vars(self):
                return vars(self)["dispatcher"]
            made = _numba().njit(**self._options)(self.py_func)
            if hasattr(sys, "ps1") and lacks_file(made):
                _announce()
            return made

    def __reduce__(self):
        return self.__qualname__  # by its name, as functions are pickled


def njit(**options):
    """Compile a function when it is first called; see :func:`numba.njit`."""
    return functools.partial(Compiled, options=options)


def overload(function, **options):
    """Give compiled code its version of a Python function; see :func:`numba.extending.overload`."""

    def register(choose):
        with _lock:
            if _registrations is None:
                _overload(function, choose, options)
            else:
                _registrations.append((function, choose, options))
        return choose

    return register


def lacks_file(dispatcher):
    """Tell whether a function that Numba keeps on disk has not been compiled yet; False if that is unknown."""
    file = getattr(getattr(getattr(dispatcher, "_cache", None), "_cache_file", None), "_index_path", None)
    return isinstance(file, str) and not os.path.exists(file)


@functools.cache
def _announce():
    """Say once to somebody who waits at a prompt what they wait for."""
    print("margindist: compiling, once, for some seconds; `margindist warm-up` does it ahead.", file=sys.stderr)


def _overload(function, choose, options):
    from numba.extending import overload

    overload(function, **options)(choose)


@functools.cache
def _numba():
    """Import Numba, and tell it what compiled functions refer to."""
    global _registrations
    with _lock:
        import numba
        from numba.extending import typeof_impl

        @typeof_impl.register(Compiled)
        def _(function, context):
            return numba.types.Dispatcher(function.dispatcher)

        for waiting in _registrations or ():
            _overload(*waiting)
        _registrations = None
        return numba
