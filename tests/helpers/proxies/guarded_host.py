# SPDX-License-Identifier: Apache-2.0
"""Run the guard beside one host whose reports and counters a test sets."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from helpers.proxies.host_statistics import stats, version_stats, write_host_file
from helpers.proxies.lifecycle_records import settled
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.guard.alerts import Alerts
from serving_proxy.guard.loop import Guard
from serving_proxy.records.models import Model
from serving_proxy.store import Database, Repository

NOW = 1_000_000.0


class Sink(Alerts):
    """Keeps alerts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def send(self, text: str, data: Any) -> None:
        json.dumps(data)
        self.texts.append(text)


class GuardedHost:
    """A control plane with one host that is this process, and counters that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = Repository(Database(folder / "proxy.sqlite3"))
        host = folder / "hosts" / "host-0"
        host.mkdir(parents=True)
        self.lock = (host / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.host = host
        self.counted: dict[int, dict[str, Any]] = {}
        self.shadows: dict[int, dict[str, Any]] = {}
        self.live: dict[int, dict[str, Any]] = {}
        self.now = NOW
        self.show({})
        self.begin()

    def begin(self) -> None:
        """Start a control plane, as after a restart."""
        self.control = Control(ControlOptions(self.folder), self.repository)
        self.sink = Sink()
        self.totals = Totals()
        self.guard = Guard(self.control, self.totals, self.sink)

    def show(self, versions: dict[int, str]) -> None:
        """Let the host report that it has versions."""
        shown = {str(n): {"state": state, "path": f"/models/{n}", "error": None} for n, state in versions.items()}
        models = {"ranking": {"versions": shown}} if shown else {}
        actual = {
            "schema": 1,
            "host": "host-0",
            "pid": os.getpid(),
            "state": "ready",
            "generation": 1,
            "models": models,
        }
        write_host_file(self.host, "actual.json", actual)

    def deploy(self, model: Model) -> None:
        """Enter a model whose versions are all ready."""
        self.show(dict.fromkeys(model.versions, "ready"))
        self.control.store([settled(model)])
        self.control.step()

    def count(self, number: int, **values: Any) -> None:
        """Set the total counters of a version."""
        self.counted[number] = version_stats(**values)

    def serve_epoch(self, number: int, epoch: int) -> None:
        """Let the host report that a version serves an epoch, and keeps the eight before the newest."""
        newest = max(epoch, self.live.get(number, {}).get("newest_epoch", 0))
        held = epoch < newest
        epochs = {"epoch": epoch, "oldest_epoch": max(0, newest - 8), "newest_epoch": newest, "held": held}
        self.live[number] = {"live": epochs}

    def look(self, seconds: float = 1.0) -> None:
        """Let time pass, and the guard look."""
        self.now += seconds
        data = stats(self.counted, time=self.now)
        following = {number: self.counted.get(number, {}) | live for number, live in self.live.items()}
        write_host_file(self.host, "stats.json", stats(following, time=self.now))
        if self.shadows:
            data["shadow"] = stats(self.shadows, time=self.now)
        self.totals.add("host-0", data)
        self.control.step()
        self.guard.step(self.now)

    def traffic(self, good: int, bad: int, seconds: int = 5) -> None:
        """Count successes of version 3, and successes and failures of version 4, each second."""
        for _ in range(seconds):
            for number, ok, failed in ((3, 1000, 0), (4, good, bad)):
                outcomes = self.counted.get(number, {"outcomes": {"OK": 0, "INTERNAL": 0}})["outcomes"]
                self.count(number, ok=outcomes["OK"] + ok, INTERNAL=outcomes["INTERNAL"] + failed)
            self.look()

    @property
    def model(self) -> Model:
        return self.control.models["ranking"]

    def rulings(self) -> list[tuple[str, str]]:
        """Return ruling and action of every event of the guard."""
        events = [event for event in self.repository.events() if event.kind == "guard" and "ruling" in event.data]
        return [(event.data["ruling"], event.data["action"]) for event in events]
