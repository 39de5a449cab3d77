# SPDX-License-Identifier: Apache-2.0
"""Render the results as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from demo.proxy.clients import ServingClient
from demo.proxy.stages import Stage
from demo.proxy.traffic import Sent
from demo.report import milliseconds


def client_table(clients: Sequence[ServingClient], sent: Sequence[Sent]) -> Table:
    """Return a table of each client's results over the whole time."""
    found = _table("Results of the clients over the whole time", "client", ("requests", "lost", "p50 ms", "p99 ms"))
    for client in clients:
        mine = [request for request in sent if request.client == client.key]
        p50, p99 = _percentiles(mine)
        lost = sum(request.lost for request in mine)
        found.add_row(client.name, f"{len(mine):,}", _count_cell(lost), milliseconds(p50), milliseconds(p99))
    return found


def stage_table(stages: Sequence[Stage], versions: Sequence[int]) -> Table:
    """Return a table of the versions that responded in each stage, next to the requested routing."""
    titles = [title for version in versions for title in (f"version {version}", "")]
    found = _table("Requests by version", "after", ("requests", *titles))
    for stage in stages:
        counts, row = stage.versions, []
        for version in versions:
            row += [f"{counts[version]:,}", f"{_share(counts[version], len(stage.sent)):.1f} %"]
        found.add_row(stage.title, f"{len(stage.sent):,}", *row)
    return found


def as_json(
    clients: Sequence[ServingClient],
    stages: Sequence[Stage],
    sent: Sequence[Sent],
    faults: Sequence[str],
    environment: dict[str, Any],
    settings: dict[str, Any],
) -> str:
    """Return the same results as JSON, with all faults and the environment."""
    by_client = []
    for client in clients:
        mine = [request for request in sent if request.client == client.key]
        p50, p99 = _percentiles(mine)
        lost = sum(request.lost for request in mine)
        by_client.append({"client": client.key, "requests": len(mine), "lost": lost, "p50_us": p50, "p99_us": p99})
    by_stage = []
    for stage in stages:
        entry: dict[str, Any] = {"stage": stage.name, "requests": len(stage.sent), "users": len(stage.users)}
        counts = stage.versions
        entry["versions"] = {
            str(version): {
                "asked_percent": share,
                "requests": counts[version],
                "percent": _share(counts[version], len(stage.sent)),
                "users_percent": stage.users_share(version),
            }
            for version, share in stage.shares.items()
        }
        by_stage.append(entry | {"users_on_more_than_one": stage.on_both})
    answered = [request.difference for request in sent if not request.lost]
    found = {
        "environment": environment,
        "settings": settings,
        "requests": len(sent),
        "lost": sum(request.lost for request in sent),
        "wrong": sum(request.wrong for request in sent),
        # JSON has no infinity.
        "max_abs_difference": max(answered) if answered and np.isfinite(answered).all() else None,
        "clients": by_client,
        "stages": by_stage,
        "faults": list(faults),
    }
    return json.dumps(found, indent=2) + "\n"


def _table(title: str, first: str, others: Sequence[str]) -> Table:
    found = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_style="bold", title_justify="left")
    found.add_column(first, no_wrap=True)
    for name in others:
        found.add_column(name, justify="right", no_wrap=True)
    return found


def _percentiles(sent: Sequence[Sent]) -> tuple[float, float]:
    """Return the median and the 99th percentile of latency [us]; zeros if no request was completed."""
    seconds = [request.seconds for request in sent if not request.lost]
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e6 if seconds else (0.0, 0.0)
    return float(p50), float(p99)


def _count_cell(count: int) -> str:
    return f"[bold red]{count:,}[/]" if count else "0"


def _share(part: int, whole: int) -> float:
    return 100.0 * part / max(1, whole)
