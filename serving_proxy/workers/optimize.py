# SPDX-License-Identifier: Apache-2.0
"""Run `graph-tools optimize` in a separate process."""

from __future__ import annotations

from pathlib import Path

from serving_proxy.workers.process import Progress, run_worker

_WORKER = "serving_proxy.workers.optimize_worker"


async def optimize(
    source: Path,
    target: Path,
    *,
    precision: str,
    table_store: Path,
    report: Path,
    requests: Path | None = None,
    live: bool = False,
    cpus: str | None = None,
    progress: Progress,
) -> None:
    """Optimize a model into `target`, verified against the source.

    Cancelling the task ends the process, which leaves no incomplete files behind.

    Parameters
    ----------
    live : bool
        The result must be able to follow a timeline.

    Raises
    ------
    PreconditionError
        The model cannot be optimized or made live, or its scores differ; with the tool's own message.
    """
    asked = {
        "source": str(source),
        "target": str(target),
        "precision": precision,
        "table_store": str(table_store),
        "report": str(report),
        "requests": [str(requests)] if requests else [],
        "live": live,
        "cpus": cpus,
    }
    await run_worker(_WORKER, asked, f"graph-tools optimize {source}", progress)
