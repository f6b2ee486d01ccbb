"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def written_whole(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file that takes its place when the block ends well; else what was there before stays.

    Until then it stands beside its place, under a name that follows from it: what a killed process has left there is
    overwritten by the next one, and two processes that write the same file take turns.

    Parameters
    ----------
    path : str or path
        The file. Where something else stands, such as ``/dev/null``, it is opened and not replaced.

    Raises
    ------
    OSError
        If it cannot be written; its ``filename`` is the path given.

    Examples
    --------
    >>> import tempfile
    >>> from margindist.files import written_whole
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder / "a") as file:
    ...     _ = file.write(b"all of it")
    >>> [file.name for file in folder.iterdir()]
    ['a']
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                yield file
            return
        part = path.with_name(f".{path.name}.part")
        with _opened_alone(part) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # Windows cannot replace an open file
                os.replace(part, path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
    """Write text (as UTF-8) or bytes to a file at once.

    Parameters
    ----------
    path : str or path
        As for :func:`written_whole`.
    content : str or bytes
        All that the file will hold.
    """
    with written_whole(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def _opened_alone(part):
    """The file, empty, while no other process has it open here."""
    while True:
        with open(part, "wb", opener=_without_truncating) as file:
            if fcntl is not None:
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(file, part):  # else another process has moved it to its place meanwhile
                file.truncate(0)
                yield file
                return


@contextmanager
def locked(path: str | os.PathLike) -> Iterator[bool]:
    """Hold a file as a lock while the block lasts; yield whether it was free.

    The system lets go of it when a process ends, however it ends. Where there are no locks it counts as free.

    Parameters
    ----------
    path : str or path
        Made by this, and removed at the end.
    """
    path = Path(path)
    with open(path, "ab") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # not every file system has locks
            pass
        try:
            yield True
        finally:
            with suppress(OSError):
                path.unlink()


def _without_truncating(path, flags):
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


def _is_still(file, path):
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
