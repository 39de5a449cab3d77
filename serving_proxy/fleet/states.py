# SPDX-License-Identifier: Apache-2.0
"""The state that each machine is to follow, and the wait of its agent for the next one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from serving_proxy.deploy.control import Control
from serving_proxy.fleet.machine_state import cores_of, has_placement, state_of

# A wait notices within this time that the proxy ends or no longer leads.
_LOOK_S = 1.0


class MachineStates:
    """Gives agents the newest desired state.

    Parameters
    ----------
    control : Control
    leads : callable
        Whether this proxy may change what machines serve.
    """

    def __init__(self, control: Control, leads: Callable[[], bool] = lambda: True) -> None:
        self._control = control
        self._leads = leads
        self._next = asyncio.Event()
        self._texts: dict[str, bytes] = {}
        self._texts_of: tuple[int, int] | None = None
        self._differ = False

    @property
    def leads(self) -> bool:
        """Return whether this proxy may change what machines serve."""
        return self._leads()

    @property
    def order(self) -> tuple[int, int]:
        """Return the (term, generation) of the newest state."""
        return self._control.term, self._control.desired.generation

    async def newer(
        self, machine: str, after: tuple[int, int] | None, wait_s: float, ended: asyncio.Event
    ) -> bytes | None:
        """Wait for a state other than the one that a machine has.

        Parameters
        ----------
        machine : str
        after : (int, int) or None
            Its (term, generation); None: it has none.
        wait_s : float [s]
            Longest time to wait.
        ended : asyncio.Event
            Ends the wait.

        Returns
        -------
        bytes or None
            The JSON of a `MachineState`; None if there is no other state.
        """
        end = time.monotonic() + wait_s
        while not ended.is_set() and self._leads():
            if self._control.has_published and self.order != after:
                return self._message(machine)
            left = end - time.monotonic()
            if left <= 0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK_S)):
                    await self._next.wait()
        return None

    async def run(self) -> None:
        """Wake those that wait whenever there is another state, until the task is cancelled.

        The feed also tells of events, which are many; all agents need not be woken for each of them.
        """
        woken = None
        while True:
            if self._control.has_published and self.order != woken:
                woken = self.order
                before, self._next = self._next, asyncio.Event()
                before.set()
            await self._control.feed.change(_LOOK_S)

    def _message(self, machine: str) -> bytes:
        order, body = self.order, self._control.desired.body
        if self._texts_of != order:
            self._texts_of, self._texts = order, {}
            self._differ = has_placement(body)
        # Without a placement, one text serves all machines.
        key = machine if self._differ else ""
        if key not in self._texts:
            desired = state_of(body, machine) if self._differ else body
            state: dict[str, Any] = {"term": order[0], "generation": order[1], "desired": desired}
            if self._differ and self._control.host_settings.placed_cores:
                state["cores"] = cores_of(body, machine)
            self._texts[key] = json.dumps(state, allow_nan=False).encode()
        return self._texts[key]
