# SPDX-License-Identifier: Apache-2.0
"""Measure the memory and the disk of variants that differ in few rows from one base, in one host."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.lineage import read_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from load_tests._report import Target
from load_tests.live.footprint import footprint
from load_tests.live.host import Connection, LiveHost
from load_tests.live.large import shape_of
from load_tests.live.model import HOT, Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["judge", "measure"]

#: Largest memory of all variants over that of one.
MOST = 1.7
_DIFFERENT = 0.01
_READY_S = 600.0


def measure(setup: Setup) -> dict[str, Any]:
    """Serve one variant, then all of them, and read the memory of the host after all rows of the base were read.

    Each variant is the artifact of the base and a timeline with one segment.
    """
    count = setup.size(50, 3)
    shape = shape_of(setup)
    artifact = ensure_artifact(shape, setup.cache)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timelines = {number: folder / f"timeline-{number}" for number in range(1, count + 1)}
        for number, timeline in timelines.items():
            _write(shape, artifact, timeline, number)
            setup.tick(f"timeline {number}")
        deployed = {1: timelines[1]}
        with LiveHost(artifact, deployed, folder / "host", sessions=1) as host:
            connection = Connection(host.port)
            wrong = _check(connection, shape, list(deployed))
            _read_all(connection, shape)
            points = [{"variants": 1} | footprint(host.pid)]
            for number in (count - 1, count):
                begun = time.monotonic()
                host.desire({other: timelines[other] for other in range(1, number + 1)})
                host.wait(partial(connection.ready, number), f"variant {number}", _READY_S)
                seconds = time.monotonic() - begun
                wrong += _check(connection, shape, list(range(1, number + 1)))
                points.append({"variants": number} | footprint(host.pid))
                setup.tick(f"{number} variants, {points[-1]['total'] / 1e6:.0f} MB")
            connection.close()
        disk = _bytes(timelines[count])
    first, before, last = (point["total"] for point in points)
    return {
        "variants": count,
        "keys": shape.keys,
        "changed_rows": int(shape.keys * _DIFFERENT),
        "wrong": wrong,
        "points": points,
        "memory_over_one": round(last / first, 4),
        "last_variant_bytes": last - before,
        "last_variant_disk_bytes": disk,
        "artifact_bytes": _bytes(artifact),
        "last_variant_seconds": round(seconds, 2),
    }


def _write(shape: Shape, artifact: Path, timeline: Path, number: int) -> None:
    """Publish the rows in which a variant differs: those of the first keys, and as many others as it needs."""
    position = read_lineage(artifact)
    assert position is not None
    others = np.random.default_rng(number).choice(
        np.arange(HOT, shape.keys), int(shape.keys * _DIFFERENT) - HOT, replace=False
    )
    keys = np.sort(np.concatenate([np.arange(HOT), others])).astype(np.int64)
    writer = TimelineWriter(timeline, position, "bench-live")
    writer.publish(delta_of(shape, 1, keys, value=number, variables={}))


def _check(connection: Connection, shape: Shape, versions: list[int]) -> int:
    """Return how many variants answer with other rows than their own, or with the dense layers of another epoch."""
    wrong = 0
    for version in versions:
        keys = np.random.default_rng(version).integers(0, HOT, (8, shape.features))
        answer = connection.ask(keys, version)
        right = np.all(answer.rows == version) and np.all(answer.y == version)
        wrong += not (right and answer.epoch == 1)
    return wrong


def _read_all(connection: Connection, shape: Shape) -> None:
    """Ask for all keys, so that all rows of the base are in memory."""
    rows = 500
    for begin in range(0, shape.keys, rows * shape.features):
        keys = np.arange(begin, begin + rows * shape.features) % shape.keys
        connection.ask(keys.reshape(rows, shape.features))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the memory with the target."""
    label = f"memory of {case['variants']} variants that differ in 1 % of the rows, over one"
    return [Target(label, case["memory_over_one"], MOST, at_least=False)]
