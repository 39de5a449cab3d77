# SPDX-License-Identifier: Apache-2.0
"""Write statistics like hosts, for tests of the guard, of the history and of the dashboard."""

from __future__ import annotations

import json
import os
import threading
import time as clock
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from helpers.system.background import Background

BOUNDS_US = [round(10.0 * 2 ** (step / 4), 3) for step in range(91)]


def latency(counts_by_ms: dict[float, int]) -> dict[str, Any]:
    """Return a histogram with the given number of requests for each latency."""
    counts = [0] * (len(BOUNDS_US) + 1)
    for milliseconds, count in counts_by_ms.items():
        counts[bisect_left(BOUNDS_US, milliseconds * 1000)] += count
    below = list(accumulate(counts))
    return {"count": below[-1], "buckets": [list(pair) for pair in zip(BOUNDS_US, below, strict=False)]}


def version_stats(
    ok: int = 0, milliseconds: dict[float, int] | None = None, scores: tuple[int, int] | None = None, **outcomes: int
) -> dict[str, Any]:
    """Return the entry of a version; `scores`: numbers of inspected responses (one score each) and of NaN scores."""
    made: dict[str, Any] = {"outcomes": {"OK": ok, **outcomes}, "duration_us": latency(milliseconds or {1.0: ok})}
    made |= {"queue_us": {"count": ok, "mean": 10.0}, "run_us": {"count": ok, "mean": 900.0}, "in_flight": 0}
    if scores is not None:
        made["scores"] = {"answers": scores[0], "count": scores[0], "nan": scores[1], "infinite": 0}
    return made


def following(epoch: int) -> dict[str, Any]:
    """Return the entry of a version that was held before the newest epoch, two minutes old, and has refused another."""
    live: dict[str, Any] = {"epoch": epoch, "oldest_epoch": 0, "newest_epoch": epoch + 1, "held": True}
    live |= {"knows_us": round((clock.time() - 120) * 1e6), "rows": 1500 * epoch, "overlay_bytes": 8_400_000}
    return {"live": live | {"refused": 1, "error": "9.delta: <b>damaged</b>"}}


def shadow_version(compared: int, failed: int = 0, correlation: float = 1.0, nan: int = 0) -> dict[str, Any]:
    """Return the entry of a shadow version, with one score per response."""
    spread = 0.05
    return {
        "requests": compared, "scores": compared, "errors": failed, "mismatches": 0, "dropped": 0,
        "nan": nan / max(1, compared), "infinite": 0.0, "live_nan": 0.0, "live_infinite": 0.0,
        "max_absolute_difference": 0.2,
        "compared_requests": compared, "request_difference": 0.01, "request_difference_squares": 0.0002,
        "rank_correlation_requests": compared, "rank_correlation": correlation,
        "rank_correlation_squares": correlation**2 + spread**2,
    }  # fmt: skip


def stats(versions: dict[int, dict[str, Any]], model: str = "ranking", time: float = 0.0) -> dict[str, Any]:
    """Return a `stats.json` or a `shadow.json`."""
    shown = {str(number): version for number, version in versions.items()}
    return {"schema": 1, "host": "host-0", "time": str(time), "models": {model: {"versions": shown}}}


def write_host_file(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Replace a host's file as a host does."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{name}.new-{os.getpid()}"
    beside.write_text(json.dumps(content), encoding="utf-8")
    beside.rename(folder / name)


@contextmanager
def counting(state_dir: Path, *, failing: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Write statistics of `ranking` for host-0 like client traffic: 400/s to 3, 40/s to 4, mirrored requests to 5."""
    folder = state_dir / "hosts" / "host-0"

    def write(ended: threading.Event) -> None:
        tick, failed = 0, 0
        while not ended.is_set():
            tick += 1
            failed += 20 if failing() else 0
            grown = {1.1: 300 * tick, 2.6: 88 * tick, 5.0: 8 * tick, 11.0: 4 * tick}
            small: dict[str, Any] = {"milliseconds": {1.1: 32 * tick, 4.0: 8 * tick}, "UNKNOWN": failed}
            versions = {
                3: version_stats(ok=400 * tick, milliseconds=grown, scores=(25 * tick, 0)) | following(tick),
                4: version_stats(ok=40 * tick, scores=(4 * tick, 0), **small),
            }
            now = clock.time()
            write_host_file(folder, "stats.json", stats(versions, time=now))
            write_host_file(folder, "shadow.json", stats({5: shadow_version(60 * tick, correlation=0.97)}, time=now))
            ended.wait(1.0)

    with Background(write):
        yield
