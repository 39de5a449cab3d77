# SPDX-License-Identifier: Apache-2.0
"""The terminal's view of placements and endpoints."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from serving_proxy.cli.rendering import clock, notes, table


def render_placement(found: dict[str, Any]) -> RenderableType:
    """Return the machines of each model as a table."""
    if found["applied"] is None:
        return Text("All machines get all models.")
    rows = [
        [escape(model["name"]), escape(", ".join(model["machines"])), escape(", ".join(model["leaving"]))]
        for model in found["models"]
    ]
    title = f"Placement of {clock(found['applied'])}"
    waits = [(model["name"], f"waits for {model['waits_for']}") for model in found["models"] if model["waits_for"]]
    remarks = [("", line) for line in found["remarks"]]
    columns = ("model", "machines", "moves from")
    # A title is as narrow as its table.
    head = Text(title, style="bold")
    return Group(head, table("", columns, rows, right=(), wrapped=columns), *notes([*waits, *remarks]))


def render_endpoints(found: dict[str, Any]) -> RenderableType:
    """Return the addresses of the hosts that serve a model as a table."""
    if not found["endpoints"]:
        return Text(f"No host serves {found['model']}.")
    rows = [
        [
            escape(endpoint["host"]),
            escape(endpoint["addresses"].get("grpc", "")),
            escape(endpoint["addresses"].get("rest", "")),
            ", ".join(map(str, endpoint["versions"])),
            _away(endpoint.get("away_for")),
        ]
        for endpoint in found["endpoints"]
    ]
    return table(f"Endpoints of {found['model']}", ("host", "gRPC", "REST", "versions", ""), rows, right=())


def _away(seconds: float | None) -> str:
    """Return what is said of a machine that has not reported; proxies of earlier releases do not list these."""
    return "" if seconds is None else f"away for {seconds:.0f} s"
