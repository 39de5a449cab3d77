# SPDX-License-Identifier: Apache-2.0
"""Wait for the lease, and renew it while this proxy leads."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import replace

from serving_proxy.errors import ProxyError, UnavailableError
from serving_proxy.leadership.lease import Held, Lease, renewed

log = logging.getLogger("serving_proxy.leadership")

# The holder stops leading before others may take the lease.
_HELD_SHARE = 0.8
_RENEWALS = 6
# After a request that gets no answer there must be time for another one.
_REQUESTS = 3
_MOST_REQUEST_S = 5.0


def request_limit(lasts_s: float) -> float:
    """Return how long a request to renew a lease may take [s], from the time that the lease lasts."""
    return min(_MOST_REQUEST_S, lasts_s / _REQUESTS)


def boot_time() -> float:
    """Return seconds of a clock that also runs while the machine sleeps or this process is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """The lease as one proxy sees it.

    Parameters
    ----------
    lease : Lease
    url : str
        Admin port of this proxy.
    lasts_s : float [s]
        Longest time without a renewal.

    Attributes
    ----------
    seen : Held or None
        The lease that was seen last, of whatever proxy.
    is_cut_off : bool
        Whether the lease, or the store that proxies share, could not be read when this proxy tried last.
    lost : asyncio.Event
        Set when this proxy no longer leads.
    """

    def __init__(self, lease: Lease, url: str, lasts_s: float) -> None:
        self._lease = lease
        self._name = secrets.token_hex(8)
        self._url = url
        self._lasts_s = lasts_s
        self._held: Held | None = None
        self._until = 0.0
        self._has_resigned = False
        self.seen: Held | None = None
        self._seen_at = 0.0
        self.is_cut_off = False
        self.lost = asyncio.Event()

    @property
    def leader(self) -> str | None:
        """Return the admin port of the proxy that was seen to lead; None if none was, or it was this one until now."""
        if self.seen is None or (self.seen.holder == self._name and not self.holds()):
            return None
        return self.seen.url

    @property
    def term(self) -> int:
        """Return the term of this proxy's lease; 0 if it has had none."""
        return 0 if self._held is None else self._held.term

    def holds(self) -> bool:
        """Return whether this proxy leads: no other can have taken the lease yet."""
        return not self._has_resigned and boot_time() < self._until

    async def look(self, known_term: int = 0) -> bool:
        """Look at the lease once, take it if its holder no longer renews it, and return whether this proxy leads now.

        Parameters
        ----------
        known_term : int
            The largest term of which this proxy has the state.

        Raises
        ------
        ProxyError
            The lease cannot be read, or is older than what is known.
        """
        found = await asyncio.to_thread(self._lease.read)
        last = 0 if found is None else found.term
        if known_term > last and not self._lease.is_apart:
            said = "no lease" if found is None else f"the lease of term {found.term}"
            raise UnavailableError(
                f"--shared-store: {said}, although this proxy knows term {known_term}, expected the earlier "
                "store; is it mounted?"
            )
        if found != self.seen:
            self.seen, self._seen_at = found, boot_time()
        if found is not None and not found.released and boot_time() - self._seen_at < found.lasts_s:
            return False
        wanted = Held(max(last, known_term) + 1, self._name, self._url, self._lasts_s)
        begun = boot_time()
        if not await asyncio.to_thread(self._lease.take, wanted):
            return False
        self._held, self.seen, self.lost = wanted, wanted, asyncio.Event()
        self._until, self._has_resigned = begun + _HELD_SHARE * self._lasts_s, False
        return True

    @property
    def period_s(self) -> float:
        """Return the time between two looks or renewals [s]."""
        return self._lasts_s / _RENEWALS

    async def keep(self) -> None:
        """Renew the lease until it is lost, or the task is cancelled."""
        pause_s = self.period_s
        while self._held is not None:
            await asyncio.sleep(pause_s)
            begun = boot_time()
            if self._has_resigned:
                break
            if begun >= self._until:
                log.error("the lease was not renewed in time; this proxy no longer leads")
                break
            try:
                self._held = renewed(self._held)
                if not await asyncio.to_thread(self._lease.renew, self._held):
                    log.error("another proxy leads")
                    break
            except ProxyError as error:
                log.warning("lease: %s", error)
                # At once if the failure has taken long: there is time for one more try.
                pause_s = max(0.0, begun + self.period_s - boot_time())
                continue
            pause_s = self.period_s
            self._until = begun + _HELD_SHARE * self._lasts_s
        self.resign()

    def resign(self) -> None:
        """Stop to lead; the lease is kept until `release`, or until it ends."""
        self._has_resigned = True
        self.lost.set()

    async def release(self) -> None:
        """Stop to lead, and let another proxy take the lease at once."""
        held, has_lease = self._held, boot_time() < self._until
        self.resign()
        self._until = 0.0
        if held is None or not has_lease:
            return
        try:
            await asyncio.to_thread(self._lease.renew, replace(renewed(held), released=True))
        except ProxyError as error:
            log.warning("lease: %s", error)
