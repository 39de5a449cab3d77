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
    return Group(table(title, columns, rows, right=(), wrapped=columns), *notes([*waits, *remarks]))
