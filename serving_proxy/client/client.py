# SPDX-License-Identifier: Apache-2.0
"""The Python client: the verbs of the admin API as methods, with its errors as exceptions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from serving_proxy.access.certificates import trust
from serving_proxy.access.tokens import check_clear_text
from serving_proxy.client.transport import POLL_S, RetryingTransport, error_of, named_faults
from serving_proxy.deploy.deployment import check_name
from serving_proxy.errors import CancelledError, LateError, PreconditionError

DEFAULT_SERVER = "http://127.0.0.1:8502"
# The proxy asks machines for their request logs, and gives up those that take this long or do not answer.
_MACHINES_S = 180.0

Json = dict[str, Any]


class Client:
    """A client of a proxy's admin API.

    Parameters
    ----------
    server : str
        URL of the admin port; if this proxy is on standby, the one that leads is asked instead.
    token : str, optional
        The proxy's token; by default, that of a proxy which the same user runs on this machine is found.
    timeout : float [s]
        Limit for one request.
    verify : bool or path
        Certificates to trust, for `https`.
    start_timeout : float [s]
        How long to retry if the connection is refused, as by a proxy that was started a moment ago; 0: fail at once.
    told : callable, optional
        Called with a line of text after a second of such retries.

    Raises
    ------
    InvalidError
        The token would be sent over a network in clear text, or the file of certificates cannot be read.
    InvalidError
        From verbs: a name cannot be that of a model.
    ProxyError
        From every verb: the exception of `serving_proxy.errors` for the status that the proxy returns.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        timeout: float = 30.0,
        verify: bool | Path = True,
        start_timeout: float = 0.0,
        told: Callable[[str], None] | None = None,
    ) -> None:
        self.server = server
        if token:
            check_clear_text(server)
        trusted = trust(verify, "certificates to trust ") if isinstance(verify, Path) else verify
        # Proxies that the environment names are for other networks.
        with named_faults(self.server):
            self._http = httpx.Client(
                base_url=server,
                timeout=timeout,
                transport=RetryingTransport(server, token, trusted, start_timeout, told),
                trust_env=False,
                follow_redirects=False,
            )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def deploy(
        self, name: str, path: str | Path, *, wait: bool = False, timeout: float | None = None, **options: Any
    ) -> Json:
        """Deploy a version.

        Parameters
        ----------
        name : str
        path : path
            Its SavedModel folder, or a DeepRec Processor's JSON, as the proxy sees it.
        wait : bool
            Return once it is ready; raise an error if it fails.
        timeout : float, optional [s]
            Longest time to wait.
        options
            Fields of `serving_proxy.deploy.options.DeployOptions`, such as `traffic` [%].

        Returns
        -------
        dict
            `version`, `job`, `notes`, `model`.
        """
        body = {key: value for key, value in options.items() if value is not None}
        limit = _MACHINES_S if options.get("warmup") == "last" else None
        answer = self._ask("POST", f"/v1/models/{check_name(name)}/deploy", {"path": str(path), **body}, limit=limit)
        if wait:
            since = time.monotonic()
            if answer["job"] is not None:
                answer["job"] = self.wait(answer["job"]["id"], timeout)
            answer["model"] = self.wait_until_ready(name, answer["version"], timeout, since=since)
        return answer

    def undeploy(self, name: str, version: int | None = None) -> Json:
        """Take out a version after its last request, or the whole model."""
        return self._ask("POST", f"/v1/models/{check_name(name)}/undeploy", {"version": version})

    def traffic(self, name: str, weights: Mapping[int | str, float]) -> Json:
        """Split traffic: percentages by version or label; the share that is not named goes to the baseline."""
        body = {"weights": {str(version): percent for version, percent in weights.items()}}
        return self._ask("PUT", f"/v1/models/{check_name(name)}/traffic", body)

    def ramp(self, name: str, version: int, to: float, over_s: float) -> Json:
        """Change a version's share to `to` percent within `over_s` seconds."""
        return self._ask(
            "POST", f"/v1/models/{check_name(name)}/ramp", {"version": version, "to": to, "over_s": over_s}
        )

    def promote(self, name: str, version: int) -> Json:
        """Make a version the baseline once it is ready; the previous baseline stays warm."""
        return self._ask("POST", f"/v1/models/{check_name(name)}/promote", {"version": version})

    def rollback(self, name: str, epoch: int | None = None, version: int | None = None) -> Json:
        """Send everything to the last good baseline, or hold a version (the baseline) at an epoch of its timeline."""
        body = None if epoch is None and version is None else {"epoch": epoch, "version": version}
        return self._ask("POST", f"/v1/models/{check_name(name)}/rollback", body)

    def resume(self, name: str, version: int | None = None) -> Json:
        """Let a version (the baseline) that is held at an epoch follow its timeline again."""
        return self._ask("POST", f"/v1/models/{check_name(name)}/resume", {"version": version})

    def pause(self, name: str, paused: bool = True) -> Json:
        """Send everything to the baseline for a while, or resume experiments."""
        return self._ask("POST", f"/v1/models/{check_name(name)}/pause", {"paused": paused})

    def guard(self, name: str, **limits: Any) -> Json:
        """Change the given limits, and return the limits and the guard's verdicts on a model's versions."""
        path = f"/v1/models/{check_name(name)}/guard"
        return self._ask("PATCH", path, limits) if limits else self._ask("GET", path)

    def request_log(self, name: str) -> Json:
        """Return the request log's settings for a model, and its files."""
        return self._ask("GET", f"/v1/models/{check_name(name)}/request_log", limit=_MACHINES_S)

    def set_request_log(
        self, name: str, sample: float | None, max_bytes: int = 16 * 1024 * 1024, max_files: int = 8
    ) -> Json:
        """Let hosts log `sample` percent of a model's requests; None: none."""
        body = {"sample": sample, "max_bytes": max_bytes, "max_files": max_files}
        return self._ask("PUT", f"/v1/models/{check_name(name)}/request_log", body, limit=_MACHINES_S)

    def merge_request_log(self, name: str) -> Json:
        """Merge the newest requests into one file, and return its path."""
        return self._ask("POST", f"/v1/models/{check_name(name)}/request_log/merge", limit=_MACHINES_S)

    def delete_request_log(self, name: str) -> Json:
        """Remove the logged requests."""
        return self._ask("DELETE", f"/v1/models/{check_name(name)}/request_log", limit=_MACHINES_S)

    def history(self) -> Json:
        """Return request rates and latencies of the last minutes."""
        return self._ask("GET", "/v1/history")

    def workload(self) -> Json:
        """Return a workload of `cost-model place` with the measured rates and service times, and what it lacks."""
        return self._ask("GET", "/v1/workload")

    def machine(self) -> Json:
        """Return the CPUs of the machine, and which version runs on them."""
        return self._ask("GET", "/v1/machine")

    def status(self) -> Json:
        """Return hosts, models and running jobs."""
        return self._ask("GET", "/v1/status")

    def versions(self, name: str) -> Json:
        """Return a model with all its versions."""
        return self._ask("GET", f"/v1/models/{check_name(name)}/versions")

    def endpoints(self, name: str) -> Json:
        """Return the addresses to which clients send requests for a model."""
        return self._ask("GET", f"/v1/models/{check_name(name)}/endpoints")

    def explain(self, name: str) -> Json:
        """Return sentences that explain a model's state."""
        return self._ask("GET", f"/v1/models/{check_name(name)}/explain")

    def events(self, after: int = 0, model: str | None = None, limit: int = 100) -> list[Json]:
        """Return events by rising id: those after an id, or the newest ones."""
        query: dict[str, Any] = {"after": after, "limit": limit} | ({"model": model} if model else {})
        return self._ask_list("GET", "/v1/events", query=query)

    def drain(self, host: str | None = None, drain: bool = True) -> list[Json]:
        """Stop hosts after their last requests, or let them start again."""
        return self._ask_list("POST", "/v1/drain", {"host": host, "drain": drain})

    def placement(self) -> Json:
        """Return which machines have which models, and what moves."""
        return self._ask("GET", "/v1/placement")

    def apply_placement(self, placement: Mapping[str, Any], handover_s: float = 30.0) -> Json:
        """Put a placement of `cost-model place --json` into force.

        Parameters
        ----------
        placement : mapping
            Its JSON.
        handover_s : float [s]
            How long machines keep a model after its new machines have it.
        """
        used = {key: placement[key] for key in ("schema", "replicas", "unplaced") if key in placement}
        return self._ask("PUT", "/v1/placement", {"placement": used, "handover_s": handover_s})

    def clear_placement(self) -> Json:
        """Put all models on all machines."""
        return self._ask("DELETE", "/v1/placement")

    def wait_for_placement(self, timeout: float | None = None) -> Json:
        """Wait until no model moves, and return the placement.

        Raises
        ------
        LateError
            It takes longer than `timeout` [s].
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.placement()
            moving = [model for model in found["models"] if model["leaving"]]
            if not moving:
                return found
            if deadline is not None and time.monotonic() > deadline:
                waits = moving[0]["waits_for"] or "the handover"
                raise LateError(
                    f"{moving[0]['name']}: waits for {waits} after {timeout:g} s, expected it to have moved"
                )
            time.sleep(POLL_S)

    def reload(self, text: str) -> Json:
        """Replace the configuration by a `models.config`."""
        return self._ask("POST", "/v1/reload", content=text.encode())

    def jobs(self) -> list[Json]:
        """Return long operations, the newest first."""
        return self._ask_list("GET", "/v1/jobs")

    def job(self, number: int) -> Json:
        """Return a long operation."""
        return self._ask("GET", f"/v1/jobs/{number}")

    def cancel(self, number: int) -> Json:
        """Cancel a long operation."""
        return self._ask("DELETE", f"/v1/jobs/{number}")

    def wait(self, number: int, timeout: float | None = None, told: Callable[[Json], None] | None = None) -> Json:
        """Wait for a long operation, and return it.

        Parameters
        ----------
        number : int
        timeout : float, optional [s]
        told : callable, optional
            Called with the operation now and then.

        Raises
        ------
        PreconditionError, CancelledError, LateError
            It failed, was cancelled, or takes longer than `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.job(number)
            if told is not None:
                told(job)
            if job["state"] == "failed":
                raise PreconditionError(job["error"])
            if job["state"] == "cancelled":
                raise CancelledError(f"{job['model']}/{job['version']}: {job['error'] or 'cancelled'}")
            if job["state"] == "succeeded":
                return job
            if deadline is not None and time.monotonic() > deadline:
                raise LateError(
                    f"{job['model']}/{job['version']}: {job['step']} after {timeout:g} s, expected it ready"
                )
            time.sleep(POLL_S)

    def wait_until_ready(
        self,
        name: str,
        version: int,
        timeout: float | None = None,
        told: Callable[[Json], None] | None = None,
        since: float | None = None,
    ) -> Json:
        """Wait until a version is ready, also if hosts load it without an operation of the proxy; return its model.

        Parameters
        ----------
        name : str
        version : int
        timeout : float, optional [s]
            By default it waits for ever, for example for a host to come.
        told : callable, optional
            Called with the version now and then.
        since : float, optional [s]
            When the time began, by `time.monotonic`; by default now.

        Raises
        ------
        PreconditionError, LateError
            It has failed, or takes longer than `timeout` [s].
        """
        begun = time.monotonic() if since is None else since
        deadline = None if timeout is None else begun + timeout
        while True:
            model = self.versions(name)
            found = next((entry for entry in model["versions"] if entry["version"] == version), None)
            state, reason = ("stopped", "") if found is None else (found["state"], found["reason"])
            if state == "ready":
                return model
            if state in {"failed", "draining", "stopped"}:
                raise PreconditionError(f"{name}/{version}: {reason or state}")
            if told is not None and found is not None:
                told(found)
            if deadline is not None and time.monotonic() > deadline:
                said = f"{state} ({reason})" if reason else state
                raise LateError(f"{name}/{version}: {said} after {timeout:g} s, expected it ready")
            time.sleep(POLL_S)

    def stream(self, *topics: str, after: int | None = None) -> Iterator[tuple[str, Json]]:
        """Yield (`event` or `status`, its content) whenever something is new, until the proxy ends.

        Parameters
        ----------
        topics : str
            `events`, `status`; none: both.
        after : int, optional
            Id of the last event that is known already.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        query = {"topics": list(topics)} if topics else {}
        with (
            named_faults(self.server),
            self._http.stream("GET", "/v1/stream", params=query, headers=headers, timeout=60.0) as answer,
        ):
            if answer.status_code != 200:
                answer.read()
                raise error_of(answer)
            kind, data = "", ""
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                kind = value if field == "event" else kind
                data = value if field == "data" else data
                if not line and kind:
                    yield kind, json.loads(data)
                    kind, data = "", ""

    def _ask(
        self, method: str, path: str, body: Any = None, content: bytes | None = None, limit: float | None = None
    ) -> Json:
        found: Json = self._send(method, path, body, content=content, limit=limit).json()
        return found

    def _ask_list(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> list[Json]:
        found: list[Json] = self._send(method, path, body, query).json()
        return found

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        limit: float | None = None,
    ) -> httpx.Response:
        headers = {"Content-Type": "text/plain"} if content is not None else None
        timeout = self._http.timeout if limit is None else httpx.Timeout(limit, connect=self._http.timeout.connect)
        with named_faults(self.server):
            answer = self._http.request(
                method, path, json=body, params=query, content=content, headers=headers, timeout=timeout
            )
        if answer.is_error:
            raise error_of(answer)
        return answer
