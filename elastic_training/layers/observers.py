# SPDX-License-Identifier: Apache-2.0
"""Shows the keys that layers look up to somebody who asks, such as a forecast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Called with a table, its keys [n], and whether key 0 or "" means "no key".
Observer = Callable[[Any, Any, bool], None]

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer` for each lookup that this thread makes, or traces, within the context."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def notify(table: Any, keys: Any, mask_zero: bool) -> None:
    """Tell the observer, if there is one, of a lookup."""
    observer = _observer.get()
    if observer is not None:
        observer(table, keys, mask_zero)
