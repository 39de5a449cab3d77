# SPDX-License-Identifier: Apache-2.0
"""Render the results as tables, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from demo.online.lasso import Variant

#: Position in the stream, and AUC of the window that ends there.
Curve = tuple[NDArray[np.int64], NDArray[np.float64]]

#: Longest time from a sample to an answer that knows it, of 99 % of the samples [s].
TARGET_S = 2.0


@dataclasses.dataclass(frozen=True)
class Figures:
    """Contain the results of the stream.

    Attributes
    ----------
    ratings, frozen_at : int
        Ratings that were scored while they came, and how many of them the frozen model has learned.
    live_auc, frozen_auc : float
        Over the ratings after those.
    served_p50_s, served_p99_s : float
        From a sample to the first answer of a model that had learned it [s].
    requests, lost : int
        Number of requests that clients sent, and of those that got no answer.
    p50_ms, p99_ms : float
        Time that clients waited.
    epochs : int
    published_rows : int
    push_ms_longest, push_cpu_ms_longest : float
        Longest time that a publication took of the training thread, on the clock and of a CPU [ms].
    rows, zero_rows : int
        Number of rows of the trained model at the end, and of those that are all zero.
    largest_difference : float
        Largest difference between a served score at the end and stock TensorFlow's score of an export of the model.
    """

    ratings: int
    frozen_at: int
    live_auc: float
    frozen_auc: float
    served_p50_s: float
    served_p99_s: float
    requests: int
    lost: int
    p50_ms: float
    p99_ms: float
    epochs: int
    published_rows: int
    push_ms_longest: float
    push_cpu_ms_longest: float
    rows: int
    zero_rows: int
    largest_difference: float


def stream_table(found: Figures) -> Table:
    table = _table("Live", "", ("",))
    table.show_header = False
    table.add_row("ratings, each scored by the served model, then learned", f"{found.ratings:,}")
    table.add_row(f"AUC after rating {found.frozen_at:,}: live", f"{found.live_auc:.4f}")
    table.add_row("the same model, frozen there", f"{found.frozen_auc:.4f}")
    table.add_row("sample to served, p50", f"{found.served_p50_s:.2f} s")
    table.add_row(f"sample to served, p99 (target {TARGET_S:g} s)", f"{found.served_p99_s:.2f} s")
    table.add_row("epochs, rows published", f"{found.epochs:,}, {found.published_rows:,}")
    pushes = f"{found.push_ms_longest:.1f} ms, {found.push_cpu_ms_longest:.1f} ms"
    table.add_row("longest publication in the training thread, its CPU time", pushes)
    table.add_row("rows, zero rows", f"{found.rows:,}, {found.zero_rows:,}")
    table.add_row("requests of clients", f"{found.requests:,}")
    table.add_row("p50, p99 of their latency", f"{found.p50_ms:.1f} ms, {found.p99_ms:.1f} ms")
    table.add_row("lost requests", f"{found.lost:,}" if not found.lost else f"[bold red]{found.lost:,}[/]")
    return table


def lasso_table(variants: Sequence[Variant]) -> Table:
    table = _table("Group lasso", "optimizer", ("AUC", "rows", "zero", "export MB", "served MB", "ms"))
    for found in variants:
        table.add_row(
            found.name,
            f"{found.auc:.4f}",
            f"{found.rows:,}",
            f"{100 * found.zero_rows / max(1, found.rows):.0f} %",
            f"{found.exported_mb:.2f}",
            f"{found.served_mb:.2f}",
            f"{found.ms:.2f}",
        )
    return table


def faults(found: Figures, last_epoch_served: bool) -> list[str]:
    """List what is not as it should be, one sentence each."""
    listed = []
    if found.lost:
        listed.append(f"{found.lost} requests were lost, expected none")
    if not last_epoch_served:
        listed.append("the last epoch was not served, expected it within seconds")
    if not found.largest_difference <= 1e-2:
        listed.append(f"served scores differ from TensorFlow's by {found.largest_difference:g}, expected at most 0.01")
    return listed


def as_json(found: Figures, variants: Sequence[Variant], listed: Sequence[str], environment: dict[str, Any]) -> str:
    data = {
        "environment": environment,
        "stream": dataclasses.asdict(found),
        "lasso": [dataclasses.asdict(variant) for variant in variants],
        "faults": list(listed),
    }
    return json.dumps(data, indent=2) + "\n"


def draw(
    path: Path,
    found: Figures,
    live: Curve,
    frozen: Curve,
    after: NDArray[np.float64],
) -> None:
    """Draw the AUC along the stream, and the times from samples to answers.

    Parameters
    ----------
    live, frozen : Curve
    after : ndarray [samples] [s]
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), width_ratios=(3, 2))
    left.plot(*live, label=f"live, {found.live_auc:.3f}")
    left.plot(*frozen, label=f"frozen, {found.frozen_auc:.3f}")
    left.axvline(found.frozen_at, color="gray", linewidth=0.8, linestyle=":")
    left.set(xlabel="ratings", ylabel="AUC", title="Served scores, before each rating is learned")
    left.legend()
    served = np.sort(after[np.isfinite(after)])
    right.plot(served, np.arange(1, len(served) + 1) / max(1, len(served)))
    right.axvline(TARGET_S, color="gray", linewidth=0.8, linestyle=":")
    right.set(xlabel="seconds", ylabel="share of samples", title="From a sample to its answer", xlim=(0, None))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _table(title: str, first: str, others: Sequence[str]) -> Table:
    found = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_style="bold", title_justify="left")
    found.add_column(first, no_wrap=True)
    for name in others:
        found.add_column(name, justify="right", no_wrap=True)
    return found
