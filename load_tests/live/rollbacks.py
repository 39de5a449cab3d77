# SPDX-License-Identifier: Apache-2.0
"""Roll a host back to earlier epochs and on again, while clients check every answer."""

from __future__ import annotations

import http.client
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.lineage import read_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from load_tests._programs import ProgramError
from load_tests._report import Target
from load_tests.live.expected import CheckingClients, Checks, Expected
from load_tests.live.full_apply import full_apply_faults
from load_tests.live.host import Connection, LiveAnswer, LiveHost
from load_tests.live.model import Shape, delta_of, ensure_artifact
from load_tests.live.setup import Setup

__all__ = ["Rollbacks", "judge", "measure"]

SHAPE = Shape()
#: A host keeps the newest epoch and so many before it.
KEPT = 8
#: How long the host may take to serve the epoch that is wanted [s].
_GO_ON_S = 20.0
#: Answers that must be of the held epoch, one after the other.
_HELD_ANSWERS = 8
#: One of so many rollbacks is followed by a kill of the host.
_KILL_EVERY = 20
#: Epochs whose answers are compared with a full apply.
_FULLY_APPLIED = 3


class Rollbacks:
    """Roll a host back, and check what it serves.

    Parameters
    ----------
    host : LiveHost
        It follows the timeline of `writer` as version 1.
    writer : TimelineWriter
    checks : Checks
        Of an `Expected` that has the epochs of the timeline.
    draw : Random
    """

    def __init__(self, host: LiveHost, writer: TimelineWriter, checks: Checks, draw: random.Random) -> None:
        self._host, self._writer, self._checks, self._draw = host, writer, checks, draw
        self._timelines = {1: writer.folder}
        self._connection = Connection(host.port)
        self.epoch, self.kills = 0, 0
        self.targets = list[int]()
        self.dead_ends = list[str]()
        self.kept = list[LiveAnswer]()
        self.seconds = list[float]()

    def publish(self, count: int) -> None:
        """Publish epochs, each of which changes some of the rows and the dense layers."""
        for _ in range(count):
            keys = np.array(sorted(self._draw.sample(range(SHAPE.keys), self._draw.randint(1, SHAPE.keys))), np.int64)
            self.epoch = self._checks.expected.add(keys)
            self._writer.publish(delta_of(SHAPE, self.epoch, keys))

    def turn(self, number: int, kill: bool = False) -> None:
        """Publish epochs, roll back to one that is kept, publish more, maybe kill the host, and resume."""
        self.publish(self._draw.randint(1, KEPT + 1))
        try:
            self._wait_for(self.epoch)
            # Idle time, in which the newest epoch is written in place.
            time.sleep(self._draw.choice((0.0, 0.05, 0.2)))
            target = self._draw.randint(max(0, self.epoch - KEPT), self.epoch - 1) if number else 0
            self.targets.append(target)
            begun = time.monotonic()
            self._host.desire(self._timelines, {1: target})
            self._wait_for(target)
            self.seconds.append(time.monotonic() - begun)
            self.publish(self._draw.randint(0, 3))
            if kill:
                self._restart()
            for _ in range(_HELD_ANSWERS):
                found = self._answer()
                if found.epoch != target:
                    self._checks.wrong.append(f"epoch {found.epoch} while epoch {target} was held")
            if number < _FULLY_APPLIED:
                self.kept.append(self._answer(np.arange(SHAPE.keys).reshape(-1, SHAPE.features)))
            self._host.desire(self._timelines)
            self._wait_for(self.epoch)
        except (ProgramError, OSError, http.client.HTTPException, ValueError) as error:
            self.dead_ends.append(f"rollback {number + 1} of epoch {self.epoch} to {self.targets[-1:]}: {error}")
            self._host.desire(self._timelines)
            self._restart()

    def _restart(self) -> None:
        self._host.kill()
        self._connection.close()
        self._host.start()
        self.kills += 1

    def _answer(self, keys: np.ndarray[Any, np.dtype[np.int64]] | None = None) -> LiveAnswer:
        if keys is None:
            keys = np.array([[self._draw.randrange(SHAPE.keys) for _ in range(SHAPE.features)] for _ in range(4)])
        found = self._connection.ask(keys)
        self._checks.add(found)
        return found

    def _wait_for(self, epoch: int) -> None:
        self._host.wait(lambda: self._answer().epoch == epoch, f"answer of epoch {epoch}", _GO_ON_S)


def measure(setup: Setup) -> dict[str, Any]:
    """Roll a host back and on again under load; some rollbacks are followed by a kill.

    Returns
    -------
    case : dict
        `answers` (right ones), `wrong` (including those of another epoch while one is held), `dead_ends` (the host did
        not serve what it should), and how long a rollback took until its first answer.
    """
    turns, kill_every = setup.size(400, 2), setup.size(_KILL_EVERY, 2)
    seed = random.SystemRandom().randrange(1 << 31) if setup.seed is None else setup.seed
    artifact = ensure_artifact(SHAPE, setup.cache)
    start = read_lineage(artifact)
    assert start is not None
    draw, begun = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = TimelineWriter(folder / "timeline", start, "bench-live")
        checks = Checks(Expected(SHAPE))
        with LiveHost(artifact, {1: writer.folder}, folder / "host") as host:
            rollbacks = Rollbacks(host, writer, checks, draw)
            with CheckingClients(host.port, SHAPE, checks, monotone=False):
                for number in range(turns):
                    rollbacks.turn(number, (number + 1) % kill_every == 0)
                    setup.tick(f"rollback {number + 1}")
        wrong = checks.wrong + full_apply_faults(
            artifact.with_name("export"), writer.folder, rollbacks.kept, folder, setup.library
        )
    return {
        "rollbacks": len(rollbacks.targets),
        "kills": rollbacks.kills,
        "answers": checks.answers,
        "failed": checks.failed,
        "wrong": len(wrong),
        "first_wrong": wrong[:5],
        "dead_ends": rollbacks.dead_ends,
        "epochs": rollbacks.epoch,
        "fully_applied": [answer.epoch for answer in rollbacks.kept],
        "median_s": round(float(np.median(rollbacks.seconds or [0.0])), 3),
        "most_s": round(max(rollbacks.seconds, default=0.0), 3),
        "seconds": round(time.monotonic() - begun, 1),
        "seed": seed,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the counts with the targets."""
    label = f"{case['rollbacks']:,} rollbacks"
    return [
        Target(f"{label}, wrong answers", case["wrong"], 0, at_least=False),
        Target(f"{label}, dead ends", len(case["dead_ends"]), 0, at_least=False),
    ]
