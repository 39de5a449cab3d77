# SPDX-License-Identifier: Apache-2.0
"""Statistics as hosts write them, for tests of the guard, of the history and of the page."""

from __future__ import annotations

import json
import os
import threading
import time as clock
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BOUNDS_US = [round(25.0 * 2 ** (step / 4), 1) for step in range(89)]


def latency(counts_by_ms: dict[float, int]) -> dict[str, Any]:
    """Make a histogram with so many requests of each latency."""
    counts = [0] * (len(BOUNDS_US) + 1)
    for milliseconds, count in counts_by_ms.items():
        counts[bisect_left(BOUNDS_US, milliseconds * 1000)] += count
    while counts and not counts[-1]:
        counts.pop()
    return {"counts": counts, "sum_us": sum(1000 * ms * count for ms, count in counts_by_ms.items())}


def version_stats(
    ok: int = 0, milliseconds: dict[float, int] | None = None, scores: tuple[int, int] | None = None, **outcomes: int
) -> dict[str, Any]:
    """Make the entry of a version; `scores` are answers looked at, of one score each, and how many were NaN."""
    made: dict[str, Any] = {"outcomes": {"OK": ok, **outcomes}, "latency": latency(milliseconds or {1.0: ok})}
    made |= {"queue": {"count": ok, "sum_us": 10.0 * ok}, "run": {"count": ok, "sum_us": 900.0 * ok}, "in_flight": 0}
    if scores is not None:
        made["scores"] = {"answers": scores[0], "count": scores[0], "nan": scores[1], "infinite": 0}
    return made


def shadow_version(compared: int, failed: int = 0, correlation: float = 1.0, nan: int = 0) -> dict[str, Any]:
    """Make the entry of a shadow version, of one score an answer."""
    scores = {"answers": compared, "count": compared, "nan": nan, "infinite": 0}
    spread = 0.05
    return {
        "outcomes": {"compared": compared, "dropped": 0, "failed": failed},
        "scores": scores,
        "baseline_scores": scores | {"nan": 0},
        "difference": {"count": compared, "sum": 0.01 * compared, "sum_squares": 0.0002 * compared, "max": 0.2},
        "correlation": {
            "count": compared,
            "sum": correlation * compared,
            "sum_squares": (correlation**2 + spread**2) * compared,
        },
    }


def stats(
    versions: dict[int, dict[str, Any]], model: str = "ranking", time: float = 0.0, pid: int = 1
) -> dict[str, Any]:
    """Make a `stats.json`."""
    return {
        "schema": 1, "host": "host-0", "pid": pid, "started": f"start {pid}", "time": time,
        "latency_bounds_us": BOUNDS_US,
        "models": {model: {"versions": {str(number): one for number, one in versions.items()}}},
    }  # fmt: skip


def write_host_file(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Replace a host's file as a host does."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{name}.new-{os.getpid()}"
    beside.write_text(json.dumps(content), encoding="utf-8")
    beside.rename(folder / name)


@contextmanager
def counting(state_dir: Path, *, failing: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Let host-0 write statistics of `ranking` as if clients sent requests: 400/s to 3, 40/s to 4, copies to 5."""
    folder = state_dir / "hosts" / "host-0"
    ended = threading.Event()

    def write() -> None:
        tick, failed = 0, 0
        while not ended.is_set():
            tick += 1
            failed += 20 if failing() else 0
            grown = {1.1: 300 * tick, 2.6: 88 * tick, 5.0: 8 * tick, 11.0: 4 * tick}
            small: dict[str, Any] = {"milliseconds": {1.1: 32 * tick, 4.0: 8 * tick}, "UNKNOWN": failed}
            versions = {
                3: version_stats(ok=400 * tick, milliseconds=grown, scores=(25 * tick, 0)),
                4: version_stats(ok=40 * tick, scores=(4 * tick, 0), **small),
            }
            now = clock.time()
            write_host_file(folder, "stats.json", stats(versions, time=now))
            write_host_file(folder, "shadow.json", stats({5: shadow_version(60 * tick, correlation=0.97)}, time=now))
            ended.wait(1.0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
