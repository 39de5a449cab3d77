# SPDX-License-Identifier: Apache-2.0
"""Give a host damaged segments, and kill it, while clients check every answer."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.lineage import read_lineage
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import SegmentHeader
from graph_tools.store.segment_writer import write_segment
from graph_tools.store.timeline import Position
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import Array
from load_tests._programs import ProgramError
from load_tests._report import Target
from load_tests.live.expected import CheckingClients, Checks, Expected
from load_tests.live.full_apply import full_apply_faults
from load_tests.live.host import Connection, LiveAnswer, LiveHost
from load_tests.live.model import Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["KINDS", "Damage", "judge", "measure"]

SHAPE = Shape()
KINDS = ("cut", "flipped", "repeated", "reordered", "ahead", "lineage", "history", "writer")
#: What has happened when a killed host is started again.
_RESTARTS = ("nothing", "timeline away", "nothing", "copy damaged")
#: How long the host may take to refuse a segment, and to go on with a good one [s].
_REFUSE_S, _GO_ON_S = 20.0, 20.0
#: Kills follow a new segment within this time [s], which includes reading and applying it.
_LATEST_KILL_S = 0.03
#: Epochs whose answers are compared with a full apply.
_FULLY_APPLIED = 3


class Damage:
    """Own a timeline whose next segments are prepared, and damaged copies of them.

    Parameters
    ----------
    start : Position
    folder : Path
        An empty folder; `timeline` in it is what a host follows.
    draw : Random
    """

    def __init__(self, start: Position, folder: Path, draw: random.Random) -> None:
        self.timeline, self._folder, self._draw = folder / "timeline", folder, draw
        self.timeline.mkdir()
        self.expected = Expected(SHAPE)
        self.epoch = 0
        # The second writer of the timeline, so that there is an earlier term.
        TimelineWriter(folder / "prepared", start)
        self._writer = TimelineWriter(folder / "prepared", start)
        self._segments: dict[int, Segment] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Have the next two segments ready."""
        while len(self._segments) < self.epoch + 2:
            changed = self._draw.sample(range(SHAPE.keys), self._draw.randint(1, SHAPE.keys))
            keys = np.array(sorted(changed), np.int64)
            epoch = self.expected.add(keys)
            self._segments[epoch] = self._writer.publish(delta_of(SHAPE, epoch, keys))

    def good(self) -> None:
        """Put the next segment into the timeline, in the place of a damaged one if there is one."""
        self.epoch += 1
        self._put(self._segments[self.epoch].path.read_bytes(), self.epoch)
        self._prepare()

    def ahead(self) -> None:
        """Put the segment after the next one into the timeline."""
        self._put(self._segments[self.epoch + 2].path.read_bytes(), self.epoch + 2)

    def bad(self, kind: str) -> None:
        """Put a damaged segment of the next epoch into the timeline."""
        if kind == "ahead":
            self.ahead()
            return
        right = self._segments[self.epoch + 1]
        data = right.path.read_bytes()
        if kind == "cut":
            data = data[: self._draw.randrange(len(data))]
        elif kind == "flipped":
            changed = bytearray(data)
            changed[self._draw.randrange(len(data))] ^= 1 << self._draw.randrange(8)
            data = bytes(changed)
        elif kind in ("repeated", "reordered"):
            other = self.epoch if kind == "repeated" else self.epoch + 2
            data = self._segments[other].path.read_bytes()
        else:
            data = self._rewritten(kind, right.header)
        self._put(data, self.epoch + 1)

    def _rewritten(self, kind: str, header: SegmentHeader) -> bytes:
        """Return the segment as another training run, another history or an earlier writer would have written it."""
        lineage, term, previous = header.lineage, header.term, header.previous
        if kind == "lineage":
            lineage = self._draw.randbytes(len(lineage))
        elif kind == "history":
            previous = self._draw.randbytes(len(previous))
        else:
            term -= 1
        epoch, path = header.first_epoch, self._folder / "rewritten"
        path.unlink(missing_ok=True)
        times = header.event_time, header.write_time
        # An epoch that nobody may serve: its rows show where they come from.
        delta = delta_of(SHAPE, epoch, np.arange(SHAPE.keys), value=-1.0)
        write_segment(path, SegmentHeader(lineage, epoch, epoch, term, previous, *times), delta)
        return path.read_bytes()

    def spoil(self, copy: Path) -> None:
        """Replace a file of the host by one that is cut."""
        hidden = copy.with_name(".segment")
        hidden.write_bytes(copy.read_bytes()[:-1])
        os.replace(hidden, copy)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Remove the timeline until the end of the block."""
        kept = self.timeline.rename(self._folder / "away")
        try:
            yield
        finally:
            kept.rename(self.timeline)

    def _put(self, data: bytes, epoch: int) -> None:
        hidden = self.timeline / ".segment"
        hidden.write_bytes(data)
        os.replace(hidden, self.timeline / self._segments[epoch].path.name)


class _Session:
    """Do one thing after the other to a host, and check that it goes on."""

    def __init__(self, host: LiveHost, damage: Damage, checks: Checks, draw: random.Random) -> None:
        self._host, self._damage, self._checks, self._draw = host, damage, checks, draw
        self._connection = Connection(host.port)
        self.seen: Counter[str] = Counter()
        self.dead_ends: list[str] = []
        self.restart_s: list[float] = []

    def answer(self, keys: Array | None = None) -> LiveAnswer:
        """Ask for keys, by default random ones, and check the answer."""
        least = self._checks.served
        if keys is None:
            keys = np.array([[self._draw.randrange(SHAPE.keys) for _ in range(SHAPE.features)] for _ in range(4)])
        found = self._connection.ask(keys)
        self._checks.add(found, least)
        return found

    def event(self, kind: str, kill: bool) -> None:
        """Publish a segment of a kind, maybe kill the host, and go on with the right segment."""
        self.seen[kind] += 1
        number = sum(self.seen[name] for name in (*KINDS, "good"))
        try:
            refused = self._connection.refused()
            if kind == "good":
                self._damage.good()
            else:
                self._damage.bad(kind)
            if kill:
                time.sleep(self._draw.uniform(0, _LATEST_KILL_S))
                self._kill()
            elif kind != "good":
                self._host.wait(lambda: self._connection.refused() > refused, "refusal", _REFUSE_S)
            if kind != "good":
                self.answer()
                self._damage.good()
            epoch = self._damage.epoch
            self._host.wait(lambda: self.answer().epoch >= epoch, f"answer of epoch {epoch}", _GO_ON_S)
            if kind == "ahead":
                # Its segment is there already.
                self._damage.good()
                self._host.wait(lambda: self.answer().epoch >= epoch + 1, f"answer of epoch {epoch + 1}", _GO_ON_S)
        except (ProgramError, OSError, http.client.HTTPException, ValueError) as error:
            after = ", then killed" if kill else ""
            self.dead_ends.append(f"event {number}, {kind}{after}, epoch {self._damage.epoch}: {error}")
            self._host.kill()
            self._host.start()

    def _kill(self) -> None:
        """Kill the host and start it again, sometimes without its timeline or with a damaged copy of a segment."""
        how = _RESTARTS[self.seen["killed"] % len(_RESTARTS)]
        self.seen.update(("killed", how))
        self._host.kill()
        self._connection.close()
        if how == "copy damaged":
            self._damage.spoil(self._draw.choice(self._host.copies()))
        away = self._damage.away() if how == "timeline away" else contextlib.nullcontext()
        begun = time.monotonic()
        with away:
            self._host.start()
            self.restart_s.append(time.monotonic() - begun)
            self.answer()


def measure(setup: Setup) -> dict[str, Any]:
    """Put damaged segments into a timeline, kill the host after some, and check every answer meanwhile.

    Returns
    -------
    case : dict
        `answers` (right ones), `wrong`, `dead_ends` (the host did not go on), `kinds`, and how long a restart took.
    """
    events, kills = setup.size(1000, len(KINDS)), setup.size(100, 1)
    seed = random.SystemRandom().randrange(1 << 31) if setup.seed is None else setup.seed
    artifact = ensure_artifact(SHAPE, setup.cache)
    start = read_lineage(artifact)
    assert start is not None
    draw, begun = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        damage = Damage(start, folder, draw)
        damage.good()
        checks = Checks(damage.expected)
        killed = set(draw.sample(range(events), kills))
        all_keys = np.arange(SHAPE.keys).reshape(-1, SHAPE.features)
        kept = []
        with LiveHost(artifact, {1: damage.timeline}, folder / "host") as host:
            session = _Session(host, damage, checks, draw)
            with CheckingClients(host.port, SHAPE, checks):
                for event in range(events):
                    # Half of the kills follow a good segment.
                    kind = "good" if event in killed and draw.random() < 0.5 else KINDS[event % len(KINDS)]
                    session.event(kind, event in killed)
                    if (event + 1) % max(1, events // setup.size(_FULLY_APPLIED, 1)) == 0:
                        kept.append(session.answer(all_keys))
                    setup.tick(f"event {event + 1}")
        wrong = checks.wrong + full_apply_faults(
            artifact.with_name("export"), damage.timeline, kept, folder, setup.library
        )
    return {
        "events": events,
        "kinds": dict(session.seen),
        "answers": checks.answers,
        "failed": checks.failed,
        "wrong": len(wrong),
        "first_wrong": wrong[:5],
        "dead_ends": session.dead_ends,
        "epochs": damage.epoch,
        "fully_applied": [answer.epoch for answer in kept],
        "restart_s": round(max(session.restart_s, default=0.0), 2),
        "seconds": round(time.monotonic() - begun, 1),
        "seed": seed,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the counts with the targets."""
    label = f"{case['events']:,} damaged segments and kills"
    return [
        Target(f"{label}, wrong answers", case["wrong"], 0, at_least=False),
        Target(f"{label}, dead ends", len(case["dead_ends"]), 0, at_least=False),
    ]
