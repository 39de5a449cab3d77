# SPDX-License-Identifier: Apache-2.0
"""The named actor that holds the lease of several proxies, and what the driver does with it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

NAME = "lease"
# Until an actor that has been started answers.
_START_S = 50.0
# The head node alone has this. Any other node may fall silent, and Ray starts the actor again only after a minute.
_ON_HEAD = {"node:__internal_head__": 0.001}

Json = dict[str, Any]


class LeaseHolder:
    """Holds a lease in memory; each write names the stamp of what was read, so that only one of two writers succeeds.

    An actor that has been started again has forgotten the lease. Its holder renews it soon, and nobody else may take it
    until then, or until it has run out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._name = secrets.token_hex(8)
        self._writes = 0
        self._held: Json | None = None

    def read(self) -> tuple[str, Json | None]:
        """Return the stamp and the lease; None: there is none."""
        return f"{self._name}-{self._writes}", self._held

    def write(self, stamp: str, held: Json) -> tuple[bool, str, Json | None]:
        """Write the lease if its stamp is this one; return whether it was, and stamp and lease as they are then."""
        known = stamp == self.read()[0]
        if self._held is None and held["term"] > 1:
            is_renewal = held["renewals"] > 0
            known = is_renewal or (known and self._clock() - self._begun >= held["lasts_s"])
        if known:
            self._held = dict(held)
            self._writes += 1
        return known, *self.read()


class Leases:
    """What the driver does with the actor; it starts the actor if there is none.

    Parameters
    ----------
    ray : module
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._handle: Any = None

    def start(self) -> None:
        """Start the actor if there is none, and wait until it answers."""
        self._call("read", _START_S)

    def read_lease(self, limit_s: float) -> Any:
        """Return the stamp and the lease; give up after a time [s]."""
        return self._call("read", limit_s)

    def write_lease(self, stamp: str, held: Json, limit_s: float) -> Any:
        """Return whether the lease was written, and stamp and lease as they are then; give up after a time [s]."""
        return self._call("write", limit_s, stamp, held)

    def _call(self, name: str, limit_s: float, *values: Any) -> Any:
        if self._handle is None:
            self._handle = (
                self._ray.remote(LeaseHolder)
                .options(
                    name=NAME,
                    get_if_exists=True,
                    lifetime="detached",
                    max_restarts=-1,
                    num_cpus=0,
                    resources=_ON_HEAD,
                )
                .remote()
            )
        try:
            return self._ray.get(getattr(self._handle, name).remote(*values), timeout=limit_s)
        except self._ray.exceptions.RayError:
            # Perhaps it was removed, and another one has its name.
            self._handle = None
            raise
