# SPDX-License-Identifier: Apache-2.0
"""Count answers of mixed epochs, over many swaps that each happen while requests are computed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.compaction import compact
from graph_tools.store.lineage import read_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from load_tests._report import Target
from load_tests.live.client import LiveClients
from load_tests.live.model import Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["count_overlapped", "judge", "measure", "publish_swaps"]

SHAPE = Shape()
#: Requests of several clients are joined, in several sessions.
CONFIG = {
    "session_num": 2,
    "intra_op_parallelism_threads": 1,
    "inter_op_parallelism_threads": 1,
    "batching": {"mode": "zero_wait", "max_rows": 64},
    "warmup_runs": 1,
}
_THREADS = 6
#: The timeline is compacted from time to time, as in production; the newest segments stay.
_COMPACT_EVERY, _KEEP = 500, 20


def count_overlapped(switches: Sequence[Sequence[int]], first: int, last: int) -> int:
    """Count the swaps to the epochs `first` to `last` that certainly happened while a request was computed.

    Parameters
    ----------
    switches : sequence of [from, to, begin, end, next begin, next end]
        For each client and each change of its epoch, the request before it and the request after it.

    Notes
    -----
    The swap is after the last begin of a request of an earlier epoch, and before the first end of a request of the new
    one or a later one. If requests cover all of this time, the swap overlaps one, wherever it is. Of each client, only
    the two requests around its change can be in that time.
    """
    around: dict[int, list[Sequence[int]]] = {}
    for switch in switches:
        for epoch in range(max(first, switch[0] + 1), min(last, switch[1]) + 1):
            around.setdefault(epoch, []).append(switch)
    return sum(_covered(found) for found in around.values())


def _covered(switches: Sequence[Sequence[int]]) -> bool:
    # A client that begins with its first answer has no request before it.
    earlier = [(switch[2], switch[3]) for switch in switches if switch[2]]
    if not earlier:
        return False
    at, end = max(begin for begin, _ in earlier), min(switch[5] for switch in switches)
    for begin, until in sorted([*earlier, *((switch[4], switch[5]) for switch in switches)]):
        if begin <= at:
            at = max(at, until)
    return at >= end


def publish_swaps(
    writer: TimelineWriter,
    clients: LiveClients,
    swaps: int,
    pause: float,
    tick: Callable[[str], None],
) -> None:
    """Publish epochs; each once the one before has answered, and not before `pause` [s] since."""
    keys = np.arange(SHAPE.keys, dtype=np.int64)
    for epoch in range(writer.position.epoch + 1, writer.position.epoch + swaps + 1):
        due = time.monotonic() + pause
        writer.publish(delta_of(SHAPE, epoch, keys))
        clients.wait_for(epoch)
        if epoch % _COMPACT_EVERY == 0:
            compact(writer.folder, last=epoch - _KEEP)
        if epoch % 50 == 0:
            tick(f"epoch {epoch}")
        time.sleep(max(0.0, due - time.monotonic()))


def measure(setup: Setup) -> dict[str, Any]:
    """Publish epochs under load until there were enough overlapped swaps and answers; count what was wrong.

    Returns
    -------
    case : dict
        `answers` are responses to requests of four rows. `wrong` are those with an element of another epoch than the
        one that the library names. `backwards` are right, but of an earlier epoch than the answer that the same client
        had before.
    """
    swaps, answers = setup.size(10_000, 40), setup.size(10_000_000, 1_000)
    artifact = ensure_artifact(SHAPE, setup.cache)
    position = read_lineage(artifact)
    assert position is not None
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        writer = TimelineWriter(Path(folder) / "timeline", position, "bench-live")
        config = CONFIG | {"follow": str(writer.folder)}
        with LiveClients(setup, artifact, SHAPE, config, threads=_THREADS) as clients:
            # A few swaps are not overlapped.
            publish_swaps(writer, clients, swaps + swaps // 50 + 1, setup.size(20, 2) / 1000, setup.tick)
            count = clients.measure()["requests"]
            while count < answers:
                time.sleep(0.2)
                publish_swaps(writer, clients, 1, 0, setup.tick)
                count += clients.measure()["requests"]
    report = clients.report
    last = writer.position.epoch
    found = {name: value for name, value in report.items() if name != "switches"}
    return found | {
        "swaps": last,
        "overlapped": count_overlapped(report["switches"], 1, last),
        "seconds": round(time.monotonic() - begun, 1),
        "least": {"swaps": swaps, "answers": answers},
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the counts with the targets."""
    least = case["least"]
    bad = case["wrong"] + case["failed"] + case["backwards"]
    return [
        Target("answers that are mixed, failed or of an earlier epoch", bad, 0, at_least=False),
        Target("answers checked", case["answers"], least["answers"], at_least=True),
        Target("swaps that overlapped requests", case["overlapped"], least["swaps"], at_least=True),
        Target("answers from joint batches", case["batched"], 1, at_least=True),
        Target("sessions that answered", len(case["sessions"]), 2, at_least=True),
    ]
