# SPDX-License-Identifier: Apache-2.0
"""The connection of an agent to the proxy that leads, found among several."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from pydantic import ValidationError

from serving_proxy.access.certificates import connection_fault, trust
from serving_proxy.agent.link_faults import LinkFaults
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.artifacts.warmups import TOTAL
from serving_proxy.errors import LateError, ProxyError, UnavailableError, from_status
from serving_proxy.field_faults import first_fault
from serving_proxy.records.agents import AgentReport, MachineState, ReportAnswer
from serving_proxy.records.machine_logs import LogAnswer, Received

_WAIT_S = 20.0
# A proxy that is silent for longer than it was asked to wait is tried again.
# If it is busy, asking it more often would keep it busy, so the patience is doubled after each failure; others are
# asked beside it.
_SILENT_S, _MOST_PATIENCE_S = 5.0, 40.0
_CONNECT_S = 3.0


class Link:
    """Requests to the proxies of `--server`, beginning with the one that answered last.

    Parameters
    ----------
    settings : AgentSettings

    Attributes
    ----------
    faults : LinkFaults
        Logs why the requests that are repeated get no answer.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self.faults = LinkFaults()
        self._settings = settings
        self._servers = list(settings.server)
        self._moved = asyncio.Event()
        self._patience_s: dict[str, float] = {}
        trusted = trust(settings.ca_file)
        # Proxies that the environment names are for other networks.
        self._http = httpx.AsyncClient(verify=trusted, trust_env=False, follow_redirects=False)

    @property
    def server(self) -> str:
        """Return the proxy that answered last."""
        return self._servers[0]

    @property
    def machine(self) -> str:
        """Return the name of this machine."""
        return self._settings.name

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def desired(self, after: tuple[int, int] | None) -> MachineState | None:
        """Wait for a state other than the one that the machine has; None: there is none yet, ask again.

        Raises
        ------
        ProxyError
            No proxy leads or can be reached, or the answer is not complete.
        """
        params: dict[str, float] = {"wait": _WAIT_S}
        if after is not None:
            params |= {"term": after[0], "generation": after[1]}
        answer = await self._unless_moved(self._ask("GET", "desired", _WAIT_S, params=params))
        if answer is None or answer.status_code == 204:
            return None
        with _reading(answer):
            return MachineState.model_validate_json(answer.content)

    async def report(self, report: AgentReport) -> ReportAnswer:
        """Report the actual state of the machine; raise the errors of `desired`."""
        answer = await self._ask("POST", "report", 0.0, content=report.model_dump_json().encode())
        with _reading(answer):
            return ReportAnswer.model_validate_json(answer.content)

    async def answer(self, question: str, answer: LogAnswer) -> None:
        """Answer a question about a request log; raise the errors of `desired`, or NotFoundError if nobody asks it."""
        await self._ask("POST", f"logs/{question}", 0.0, content=answer.model_dump_json().encode())

    async def send(self, question: str, start: int, data: bytes) -> int:
        """Send bytes that an answer has announced, and return how many the proxy has; raise the errors of `answer`."""
        answer = await self._ask("PUT", f"logs/{question}/bytes", 0.0, params={"start": start}, content=data)
        with _reading(answer):
            return Received.model_validate_json(answer.content).received

    async def warmup(self, name: str, start: int) -> tuple[bytes, int]:
        """Read a warm-up file from a position on; return a part of it, and the size of the file [byte]."""
        answer = await self._ask("GET", f"warmups/{name}", 0.0, params={"start": start})
        size = answer.headers.get(TOTAL, "")
        if not size.isdecimal():
            raise UnavailableError(f"{answer.url}: no size, expected a warm-up file")
        return answer.content, int(size)

    async def _unless_moved(self, asking: Coroutine[Any, Any, httpx.Response]) -> httpx.Response | None:
        """Wait for an answer, but not longer than until another proxy has answered a report: None.

        A machine that falls silent does not close its connections.
        """
        self._moved.clear()
        asked, moved = asyncio.create_task(asking), asyncio.create_task(self._moved.wait())
        try:
            await asyncio.wait([asked, moved], return_when=asyncio.FIRST_COMPLETED)
            return await asked if asked.done() else None
        finally:
            asked.cancel()
            moved.cancel()

    async def _ask(self, method: str, what: str, wait_s: float, **values: Any) -> httpx.Response:
        kind = what.partition("/")[0]
        first, *others = self._servers
        patience = self._patience_s.get(kind, _SILENT_S)
        asking = asyncio.create_task(self._send(first, method, what, wait_s + patience, values))
        faults: dict[str, ProxyError] = {}
        try:
            while True:
                await asyncio.wait([asking], timeout=wait_s + _SILENT_S)
                has_ended = asking.done()
                if has_ended:
                    try:
                        return self._answered(first, kind, asking.result())
                    except ProxyError as error:
                        if isinstance(error, LateError):
                            self._patience_s[kind] = min(2 * patience, _MOST_PATIENCE_S)
                        faults[first] = error
                # Another one may lead by now, while the first one is silent.
                for server in others:
                    try:
                        answer = await self._send(server, method, what, wait_s + _SILENT_S, values)
                    except ProxyError as error:
                        faults[server] = error
                        continue
                    return self._answered(server, kind, answer)
                if has_ended:
                    break
        finally:
            if not asking.cancel() and not asking.cancelled():
                asking.exception()  # otherwise asyncio logs a fault that nobody asked for
        # A refusal says more than a proxy that does not answer.
        said = [fault for fault in faults.values() if not isinstance(fault, UnavailableError | LateError)]
        raise said[0] if said else faults[first]

    def _answered(self, server: str, kind: str, answer: httpx.Response) -> httpx.Response:
        """Remember which proxy has answered."""
        if self._servers[0] != server:
            self._servers.remove(server)
            self._servers.insert(0, server)
            self._moved.set()
        self._patience_s.pop(kind, None)
        return answer

    async def _send(
        self, server: str, method: str, what: str, limit_s: float, values: Mapping[str, Any]
    ) -> httpx.Response:
        url = f"{server.rstrip('/')}/v1/agents/{self._settings.name}/{what}"
        token = self._settings.token
        headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        timeout = httpx.Timeout(limit_s, connect=_CONNECT_S)
        try:
            answer = await self._http.request(method, url, headers=headers, timeout=timeout, **values)
        except httpx.TimeoutException as error:
            raise LateError(f"{server}: no answer in time, expected a proxy") from error
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise UnavailableError(connection_fault(server, error)) from error
        if answer.is_success:
            return answer
        raise _refusal(server, answer)


def _refusal(server: str, answer: httpx.Response) -> ProxyError:
    """Return the exception for the status that a proxy returned."""
    with suppress(ValueError, KeyError, TypeError):
        found = answer.json()["error"]
        return from_status(found["status"], f"{server}: {found['message']}")
    return UnavailableError(f"{server}: HTTP {answer.status_code}, expected a proxy with --engine agents")


@contextmanager
def _reading(answer: httpx.Response) -> Iterator[None]:
    """Convert errors of an answer's content."""
    try:
        yield
    except ValidationError as error:
        raise UnavailableError(f"{answer.url}: {first_fault(error)}; expected an answer of a proxy") from error
