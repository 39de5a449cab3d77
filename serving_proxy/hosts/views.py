# SPDX-License-Identifier: Apache-2.0
"""The API's view of hosts."""

from __future__ import annotations

from serving_proxy.records.view import View


class HostView(View):
    """A host; `origin` is `started` (by this proxy), `adopted`, or `agent` if another machine reports it."""

    name: str
    alive: bool
    origin: str
    pid: int
    version: str
    state: str
    generation: int
    desired_error: str | None
    started: str
    cpus: str
    endpoints: dict[str, str]
    restarts: int
    note: str
