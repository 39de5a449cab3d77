# SPDX-License-Identifier: Apache-2.0
"""What the proxy shows of itself: plain data that the API, the client and the terminal share. Shares are in percent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """Parent of all views."""

    model_config = ConfigDict(frozen=True)


class JobView(View):
    """A long operation; `state` is `running`, `succeeded`, `failed` or `cancelled`."""

    id: int
    kind: str
    model: str
    version: int
    state: str
    error: str | None
    step: str
    done: int
    total: int | None
    unit: str
    created: float
    finished: float | None


class EventView(View):
    """An entry of the event log."""

    id: int
    at: float
    kind: str
    model: str | None
    version: int | None
    message: str
    data: dict[str, Any]


class VersionView(View):
    """A version; `role` is `baseline`, `variant`, `shadow`, `last good`, `rolled back`, `candidate` or empty."""

    version: int
    state: str
    reason: str
    role: str
    traffic: float
    shadow: float
    labels: list[str]
    source: str
    path: str | None
    since: float
    deployed_at: float
    sha256: str | None
    bytes: int | None
    optimize: str | None
    slo_p99_ms: float | None
    settings: dict[str, Any]
    hosts: dict[str, dict[str, Any]]


class RampView(View):
    """A share that moves."""

    version: int
    start: float
    to: float
    seconds: float
    elapsed: float


class ModelView(View):
    """A model and its versions."""

    name: str
    baseline: int | None
    candidate: int | None
    last_good: int | None
    paused: bool
    layer: str
    key_input: str | None
    base_path: str | None
    policy: str | None
    labels: dict[str, int]
    ramps: list[RampView]
    versions: list[VersionView]


class HostView(View):
    """A host; `origin` is `started` by this proxy or `adopted`."""

    name: str
    alive: bool
    origin: str
    pid: int
    state: str
    generation: int
    desired_error: str | None
    started: str
    cpus: str
    endpoints: dict[str, str]
    restarts: int
    note: str


class StatusView(View):
    """All of it."""

    version: str
    pid: int
    started: float
    generation: int
    fault: str | None
    draining: bool
    hosts: list[HostView]
    models: list[ModelView]
    jobs: list[JobView]
    last_event: int


class ExplainView(View):
    """Why a model is as it is."""

    model: str
    lines: list[str]
    versions: dict[str, list[str]]
