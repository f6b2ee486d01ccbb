"""Partitions on the workers of a Dask cluster: a place for solvers in rounds.

Each worker with rows has one actor, its *share*: a :class:`~margindist.spaces.partitions.LocalPlace` over the
partitions that are there. Parts, with the state of their rows, live in it: nothing of them is moved, copied or spilled.
A round is one call per share, which sends back complete subtrees of the reduction; the client reduces those further.

When a worker dies, its rows are computed again by the workers left, from the graph that made them, shares are made
anew, and the solver starts from its last weights (:class:`~margindist.spaces.partitions.PartsLost`). Every wait ends:
with an answer, with a sentence when the client or the scheduler is gone, or with one when nothing has moved for
``timeout`` seconds.
"""

import contextlib
import time
import traceback
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from margindist.spaces.partitions import Encoder, LocalPlace, PartsLost, Tree

_POLL = 0.5  # seconds between two looks at whether client and workers are still there
_MOST_LOSSES = 10  # of workers in one fit
_GRAIN = 8  # a worker's run of partitions ends at a subtree of about this fraction of it: fewer records to send

_shares = weakref.WeakValueDictionary()  # in a worker's process: by token and address


class ClusterError(RuntimeError):
    """The cluster, or the way to it, is gone."""


class Chunk(NamedTuple):
    """A partition before it is in memory."""

    make: Callable[[], Any]  # returns a new dask.delayed of its Piece
    rows: Any = None  # the future of its rows, if they are computed already or being computed


# ---------------------------------------------------------------------- on a worker


class Share:
    """The partitions of one worker: an actor."""

    def __init__(self, token, n_partitions):
        from distributed import get_worker

        worker = get_worker()
        self.pieces = {}
        self._n_partitions = n_partitions
        self._n_jobs = worker.state.nthreads
        self._place = None
        self._blas = ThreadpoolController()
        _shares[token, worker.address] = self

    def call(self, *calls):
        """Call methods of the place here, one after the other; return whether that went well, and the last answer.

        What goes wrong is returned, not raised: an error of the connection thus can never be one of the data.
        """
        if self._place is None:
            load = Encoder(self.pieces.__getitem__)
            self._place = LocalPlace(load, self._n_partitions, list(self.pieces), self._n_jobs)
        try:
            with np.errstate(all="ignore"), self._blas.limit(limits=1, user_api="blas"):
                for name, *args in calls:
                    answer = getattr(self._place, name)(*args)
            return True, answer
        except Exception as error:
            if not isinstance(error, (ValueError, ArithmeticError)):
                error.add_note("On a Dask worker:\n" + traceback.format_exc())
            return False, error

    def leave(self):
        """Let go of rows and parts."""
        self.pieces.clear()
        self._place = None


def _attach(token, indices, pieces):
    """Give partitions that are on this worker to its share, by reference."""
    from distributed import get_worker

    share = _shares[token, get_worker().address]
    share.pieces.update(zip(indices, pieces, strict=True))


# ---------------------------------------------------------------------- on the client


class ClusterPlace:
    """A place on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    chunks : sequence of Chunk
        The partitions.
    timeout : float
        Seconds without any progress after which to give up.
    """

    def __init__(self, client, chunks, timeout):
        self.n_partitions = len(chunks)
        self._client = client
        self._chunks = chunks
        self._timeout = timeout
        self._pieces = [None] * len(chunks)  # futures
        self._homes = [None] * len(chunks)  # where they were asked to be
        self._shares = {}  # by address
        self._futures = []  # of the shares: an actor lives as long as its future
        self._encoding = None
        self._n_losses = 0

    def open(self, part_type, arguments):
        """Make new parts, on the workers that are there now."""
        self._everywhere(("open", part_type, arguments))

    def encode(self, encoding):
        """Turn labels into codes from now on."""
        self._encoding = encoding
        self._everywhere(("encode", encoding))

    def run(self, requests):
        """Run rounds on all workers; return the reduced records."""
        slim = [(k, request._replace(coef=None)) for k, request in requests]
        trees = [Tree(self.n_partitions) for _ in requests]
        for answer in self._ask(("nodes", slim)):
            for tree, nodes in zip(trees, answer, strict=True):
                tree.include(nodes)
        return [tree.result() for tree in trees]

    def close(self):
        """Let go of the shares and of what was computed for them; data that the user holds stay."""
        self._drop_shares()
        self._pieces = [None] * self.n_partitions

    def _everywhere(self, call):
        """Call a method of all shares, made anew until all of them answer."""
        while True:
            try:
                if not self._shares:
                    self._share_out()
                self._ask(call)
                return
            except PartsLost:
                continue

    def _ask(self, *calls):
        """Call methods of all shares; return the last one's answers. PartsLost if a share is gone."""
        answers, failure = [], None
        try:
            waiting = [share.call(*calls) for share in self._shares.values()]
            for future in waiting:
                fine, answer = self._answer(future)
                if not fine:
                    failure = failure or answer
                answers.append(answer)
        except (OSError, RuntimeError, KeyError, ValueError) as error:  # as Dask says that an actor is out of reach
            if isinstance(error, ClusterError):
                raise
            raise self._lost() from error
        if failure is not None:
            raise failure
        return answers

    def _answer(self, future):
        end = time.monotonic() + self._timeout
        while True:
            try:
                return future.result(timeout=_POLL)
            except TimeoutError:
                self._check_connection()
                if time.monotonic() > end:
                    raise self._too_late("a worker's answer") from None

    def _lost(self):
        """Forget the shares, and return the error that makes the solver open new ones."""
        self._drop_shares()
        self._check_connection()
        self._n_losses += 1
        if self._n_losses > _MOST_LOSSES:
            return ClusterError(
                f"expected workers that live through a fit, lost some {self._n_losses} times; do they run out of "
                f"memory? Smaller chunks or more workers may help."
            )
        return PartsLost("a Dask worker is gone")

    def _drop_shares(self):
        """Have the shares that are left let go of rows and parts; nobody waits for their answer."""
        for share in self._shares.values() if self._client.status == "running" else ():
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                share.leave()
        self._shares, self._futures = {}, []

    # ------------------------------------------------------------------ where the partitions are

    def _share_out(self):
        """Bring all partitions into memory, and make one share per worker that has some."""
        self._compute()
        at_home = {}
        has = self._who_has(self._pieces)
        for index, piece in enumerate(self._pieces):
            holders = has.get(piece.key, ())
            if not holders:
                raise self._lost()
            at_home.setdefault(min(holders), []).append(index)
        token = uuid.uuid4().hex
        actors = {
            address: self._client.submit(
                Share, token, self.n_partitions, actor=True, workers=[address], pure=False, allow_other_workers=False
            )
            for address in at_home
        }
        self._wait(actors, {address: address for address in actors})
        attached = {
            address: self._client.submit(
                _attach, token, indices, [self._pieces[i] for i in indices], workers=[address], pure=False
            )
            for address, indices in at_home.items()
        }
        self._wait(attached, {address: address for address in attached})
        self._futures = list(actors.values())
        self._shares = {address: future.result(timeout=self._timeout) for address, future in actors.items()}
        if self._encoding is not None:
            self._ask(("encode", self._encoding))

    def _compute(self):
        """Have all partitions computed, each where its rows are, or in runs of neighbours."""
        alive = self._workers()
        missing = [i for i in range(self.n_partitions) if self._pieces[i] is None or self._homes[i] not in alive]
        for index in missing:
            self._pieces[index] = None  # what waits for a dead worker must be forgotten before it is asked for again
        there = self._homes_of_rows(missing)
        layout = runs(self.n_partitions, alive)
        groups = {}
        for index in missing:
            self._homes[index] = there.get(index, layout[index])
            groups.setdefault((self._homes[index], index in there), []).append(index)
        for (address, strictly), indices in groups.items():
            tasks = [self._chunks[i].make() for i in indices]
            futures = self._client.compute(tasks, workers=[address], allow_other_workers=not strictly)
            for index, future in zip(indices, futures, strict=True):
                self._pieces[index] = future
        self._wait(dict(enumerate(self._pieces)), self._homes)

    def _homes_of_rows(self, indices):
        """Return the workers on which rows are in memory, by partition."""
        rows = {index: self._chunks[index].rows for index in indices if self._chunks[index].rows is not None}
        if not rows:
            return {}
        self._wait(rows)
        has = self._who_has(rows.values())
        return {index: min(has[future.key]) for index, future in rows.items() if has.get(future.key)}

    def _who_has(self, futures):
        return self._call_scheduler("who_has", keys=[future.key for future in futures])

    def _workers(self):
        """Return the threads of each worker, by address; wait for the first one."""
        end = time.monotonic() + self._timeout
        while not (alive := self._call_scheduler("ncores")):
            if time.monotonic() > end:
                raise self._too_late("a worker: the cluster has none")
            time.sleep(_POLL)
        return alive

    def _wait(self, futures, homes=None):
        """Wait for futures; raise their errors, or PartsLost if a worker is gone that alone may compute one of them."""
        from distributed import wait

        waiting, end = dict(futures), time.monotonic() + self._timeout
        while waiting:
            try:
                wait(list(waiting.values()), timeout=_POLL, return_when="FIRST_COMPLETED")
            except TimeoutError:
                self._check_connection()
                alive = self._call_scheduler("ncores")
                if homes is not None and any(homes[name] not in alive for name in waiting):
                    raise self._lost() from None
                if time.monotonic() > end:
                    raise self._too_late(f"{len(waiting)} of {len(futures)} tasks") from None
                continue
            except CancelledError:
                pass  # seen below
            for name, future in list(waiting.items()):
                if future.status == "error":
                    self._raise(future)
                if future.status in ("cancelled", "lost") and homes is not None:
                    raise self._lost()
                if future.status == "cancelled":  # a lost one is being computed again
                    raise self._gone()
                if future.done():
                    del waiting[name]
                    end = time.monotonic() + self._timeout

    def _raise(self, future):
        from distributed.scheduler import KilledWorker

        error = future.exception(timeout=self._timeout)
        if isinstance(error, KilledWorker):
            raise ClusterError(
                "expected chunks that a worker can hold, but computing one killed several workers; do they run out of "
                "memory? Smaller chunks or more workers may help."
            ) from error
        if isinstance(error, KeyError):  # a share that died between two tasks
            raise self._lost() from error
        raise error

    def _gone(self):
        """Return the error of rows that nobody can compute again."""
        self._check_connection()
        return ClusterError(
            "expected rows that can be computed again when a worker dies, but some were scattered, or their graph is "
            "forgotten; give Dask collections, or scatter the rows anew and fit again."
        )

    # ------------------------------------------------------------------ the connection

    def _check_connection(self):
        if self._client.status != "running":
            raise ClusterError(
                f"expected a Dask client that stays open during the fit, but it is {self._client.status}; connect "
                f"a new one and fit again."
            )

    def _call_scheduler(self, name, **arguments):
        self._check_connection()
        try:
            return self._client.sync(getattr(self._client.scheduler, name), callback_timeout=self._timeout, **arguments)
        except (OSError, RuntimeError) as error:
            self._check_connection()
            raise ClusterError(
                f"expected a Dask scheduler at {self._client.scheduler.address}, but it does not answer; start it, "
                f"connect a new client and fit again."
            ) from error

    def _too_late(self, what):
        return ClusterError(
            f"waited {self._timeout:g} seconds for {what} and nothing came; look at the cluster, or set a longer "
            f"limit: dask.config.set({{'margindist.timeout': seconds}})."
        )


def runs(n_partitions, n_threads):
    """Return a worker for every partition: runs of neighbours, in proportion to the workers' threads.

    Runs end where subtrees of the reduction end, as far as that leaves them of about equal length: a worker then has
    few records to send.
    """
    addresses = sorted(n_threads)
    ends = n_partitions * np.cumsum([n_threads[address] for address in addresses]) / sum(n_threads.values())
    grain = 1 << max(0, int(n_partitions / len(addresses) / _GRAIN).bit_length() - 1)
    ends = np.minimum(n_partitions, grain * np.round(ends / grain)).astype(int)
    ends[-1] = n_partitions
    return [addresses[k] for k in np.searchsorted(ends, np.arange(n_partitions), side="right")]
