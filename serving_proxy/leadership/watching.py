# SPDX-License-Identifier: Apache-2.0
"""Find out whether a leader still has the store that proxies share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from serving_proxy.errors import ProxyError, UnavailableError
from serving_proxy.leadership.leading import boot_time
from serving_proxy.leadership.shared_store import OtherStoreError

log = logging.getLogger("serving_proxy.leadership")

_LOOK_S = 5.0
# Of three requests to a bucket that get no answer.
_PATIENCE_S = 15.0


def patience(lasts_s: float) -> float:
    """Return how long a leader may be without the store [s], from the time that its lease lasts."""
    return max(_PATIENCE_S, lasts_s)


async def watch_store(check: Callable[[], None], lose: Callable[[], None], patience_s: float) -> None:
    """Check the store now and then, until this proxy must not lead any more, or the task is cancelled.

    A lease in the store ends with it. Without this, a leader whose lease is elsewhere would renew it while it cannot
    accept a change, and keep it from a proxy that could.

    Parameters
    ----------
    check : callable
        Raises OtherStoreError if the store is not the earlier one, and ProxyError if it cannot be read or written to;
        called on a thread, in which it may block.
    lose : callable
        Called when this proxy must not lead any more: at once if the store is another one.
    patience_s : float [s]
        Longest time without a check that has succeeded.
    """
    fault, answered, look_s = "", boot_time(), min(_LOOK_S, patience_s / 3)
    while True:
        begun = boot_time()
        try:
            await _answer(check, max(look_s, answered + patience_s - begun))
            fault, answered = "", begun
        except OtherStoreError as error:
            log.error("this proxy no longer leads: %s", error)
            lose()
            return
        except ProxyError as error:
            if str(error) != fault:
                fault = str(error)
                log.warning("shared store: %s", fault)
            if boot_time() - answered >= patience_s:
                log.error("this proxy no longer leads: it has been without the shared store for %g s", patience_s)
                lose()
                return
        await asyncio.sleep(max(0.0, begun + look_s - boot_time()))


async def _answer(check: Callable[[], None], limit_s: float) -> None:
    """Wait for a check; a file system over a network may never answer."""
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.to_thread(check)
    except TimeoutError as error:
        raise UnavailableError(f"no answer for {limit_s:.2g} s, expected the store that proxies share") from error
