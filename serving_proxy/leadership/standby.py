# SPDX-License-Identifier: Apache-2.0
"""Follow the proxy that leads, until this one does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from serving_proxy.errors import ProxyError
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.replica import Replica
from serving_proxy.store import Repository

log = logging.getLogger("serving_proxy.leadership")

_Result = TypeVar("_Result")


async def reopen(make: Callable[[], Replica], leadership: Leadership, ended: asyncio.Event) -> Replica | None:
    """Open the database of a proxy that has led, as soon as the store answers; None if the event was set before."""

    async def open_once() -> Replica | None:
        return await asyncio.to_thread(make)

    return await _retried(open_once, leadership, ended)


async def stand_by(
    replica: Replica,
    leadership: Leadership,
    ended: asyncio.Event,
    check: Callable[[Repository], object] = Repository.models,
) -> bool:
    """Follow the log until this proxy leads, and return whether it does; false if the event was set before.

    Parameters
    ----------
    replica : Replica
    leadership : Leadership
    ended : asyncio.Event
    check : callable
        Raises `ProxyError` if this proxy cannot read a record, so that it must not lead.
    """

    async def lead_once() -> bool | None:
        # Before the lease is taken: a proxy that cannot lead must not keep it from one that can.
        await asyncio.to_thread(replica.catch_up)
        await asyncio.to_thread(replica.check_readable, check)
        if not await leadership.look(replica.known_term):
            return None
        await asyncio.to_thread(replica.catch_up)
        await asyncio.to_thread(replica.lead, leadership.term, leadership.holds, leadership.resign)
        return True

    return await _retried(lead_once, leadership, ended) is not None


async def _retried(
    attempt: Callable[[], Awaitable[_Result | None]], leadership: Leadership, ended: asyncio.Event
) -> _Result | None:
    """Try until an attempt has a result, and return that; None if the event was set before.

    A fault of the lease or of the store is logged once until it changes.
    """
    fault = ""
    while not ended.is_set():
        pause_s = leadership.period_s / 2
        try:
            result = await attempt()
            fault, leadership.is_cut_off = "", False
            if result is not None:
                return result
        except ProxyError as error:
            await leadership.release()
            leadership.is_cut_off = True
            # Others, which look twice as often, may be able to lead.
            pause_s = leadership.period_s
            if str(error) != fault:
                fault = str(error)
                log.error("standby: %s", fault)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await ended.wait()
    return None
