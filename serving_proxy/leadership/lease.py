# SPDX-License-Identifier: Apache-2.0
"""The lease that one proxy holds at a time.

A lease is an object for each term. Its holder writes a growing number into it; another proxy that sees the same number
for as long as the lease lasts creates the object of the next term. Only one can create it. No proxy compares its clock
with that of another: each measures durations.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.shared_store import SharedStore

TERMS = "terms"
_KEPT_TERMS = 5


@dataclass(frozen=True)
class Held:
    """A lease as it was written last.

    Attributes
    ----------
    term : int
    holder : str
        Identifies the process.
    url : str
        Its admin port.
    lasts_s : float [s]
        How long it must not have been renewed before it may be taken.
    renewals : int
    released : bool
        Its holder has ended in order; it may be taken at once.
    """

    term: int
    holder: str
    url: str
    lasts_s: float
    renewals: int = 0
    released: bool = False


class Lease(Protocol):
    """What an engine offers for leadership: an object of a shared store, a Lease of Kubernetes, a named actor of Ray.

    Every call may block, and raises UnavailableError if the engine cannot be reached. `read` comes before each `take`.

    Attributes
    ----------
    is_apart : bool
        It may be lost while the log is not. Otherwise both are in one store, and a missing lease means that this is
        the wrong store.
    """

    is_apart: bool

    def read(self) -> Held | None:
        """Return the lease of the highest term."""

    def take(self, wanted: Held) -> bool:
        """Take the lease of a term that nobody has had yet, and return whether this proxy has got it."""

    def renew(self, held: Held) -> bool:
        """Write the lease of this proxy again, and return whether it is still that of the highest term."""


class StoreLease:
    """A lease in the store that proxies share.

    Parameters
    ----------
    store : SharedStore
    """

    is_apart = False

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    def read(self) -> Held | None:
        """Return the lease of the highest term."""
        terms = self._store.numbers(TERMS)
        if not terms:
            return None
        data = self._store.get(_name(terms[-1]))
        return None if data is None else _parse(terms[-1], data)

    def take(self, wanted: Held) -> bool:
        """Create the lease of a term."""
        if not self._store.create(_name(wanted.term), _text(wanted)):
            return False
        for term in self._store.numbers(TERMS):
            if term < wanted.term - _KEPT_TERMS:
                self._store.remove(_name(term))
        return True

    def renew(self, held: Held) -> bool:
        """Write the lease again, unless another proxy has that of the next term, or this one.

        Raises
        ------
        UnavailableError
            The lease that this proxy has written is gone: this is another store.
        """
        if self._store.get(_name(held.term + 1)) is not None:
            return False
        data = self._store.get(_name(held.term))
        if data is None:
            raise UnavailableError(f"{_name(held.term)}: gone, expected the earlier store; is it mounted?")
        if _parse(held.term, data).holder != held.holder:
            return False
        self._store.put(_name(held.term), _text(held))
        return True


def renewed(held: Held) -> Held:
    """Return the next content of a lease."""
    return replace(held, renewals=held.renewals + 1)


def _name(term: int) -> str:
    return f"{TERMS}/{term:012d}"


def _text(held: Held) -> bytes:
    return json.dumps(asdict(held)).encode() + b"\n"


def _parse(term: int, data: bytes) -> Held:
    try:
        found = json.loads(data)
        return Held(
            term,
            str(found["holder"]),
            str(found["url"]),
            float(found["lasts_s"]),
            int(found["renewals"]),
            bool(found["released"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnavailableError(f"{_name(term)}: {error}, expected the lease of a proxy") from error
