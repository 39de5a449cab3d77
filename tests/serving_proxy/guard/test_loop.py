# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.host_statistics import shadow_version, stats, version_stats, write_host_file
from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.changes import pause, set_traffic
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.guard.alerts import Alerts
from serving_proxy.guard.loop import Guard, with_settings
from serving_proxy.records.guard_settings import GuardSettings
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


class Place:
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

    def look(self, seconds: float = 1.0) -> None:
        """Let time pass, and the guard look."""
        self.now += seconds
        data = stats(self.counted, time=self.now)
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


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.lock.close()


def _experiment(**settings: Any) -> Model:
    model = deployed(deployed(None, 3), 4, traffic=1000)
    return with_settings(model, GuardSettings(**settings)).model


def test_a_bad_variant_loses_its_traffic_once_and_the_reason_is_kept(place: Place) -> None:
    place.deploy(_experiment())
    place.traffic(100, 0)
    assert place.rulings()[-1] == ("ok", "none")
    place.traffic(90, 10, seconds=30)
    assert place.model.weights == {}
    version = place.model.versions[4]
    assert (version.held, version.rejected, version.state) == (True, True, "ready")
    assert place.rulings().count(("bad", "rollback")) == 1
    (alert,) = place.sink.texts
    assert alert.startswith("ranking/4: rolled back; ")
    assert "requests failed" in alert
    desired = json.loads((place.folder / "desired.json").read_bytes())["models"]["ranking"]
    assert desired["routing"]["arms"] == []
    assert desired["versions"]["4"]["traffic"] is False


def test_a_good_variant_keeps_its_traffic(place: Place) -> None:
    place.deploy(_experiment())
    place.traffic(100, 0, seconds=90)
    assert place.model.weights == {4: 1000}
    assert place.rulings().count(("ok", "none")) == 2  # the baseline's and the variant's
    assert not place.sink.texts


def test_an_operator_may_try_again_and_the_guard_judges_anew(place: Place) -> None:
    place.deploy(_experiment())
    place.traffic(100, 100)
    assert place.model.weights == {}
    place.control.commit(set_traffic(place.model, {4: 500}, ()))
    place.traffic(100, 0, seconds=3)
    assert place.model.weights == {4: 500}
    place.traffic(0, 200)
    assert place.model.weights == {}
    assert place.rulings().count(("bad", "rollback")) == 2


def test_alert_alone_changes_nothing_and_comes_once_even_after_restarts(place: Place) -> None:
    place.deploy(_experiment(action="alert"))
    place.traffic(50, 50)
    assert place.model.weights == {4: 1000}
    assert [text.split(";")[0] for text in place.sink.texts] == ["ranking/4: outside its limits"]
    place.begin()
    place.traffic(50, 50)
    # A host that is restarted has the version, for a moment, not ready.
    place.show({3: "loading", 4: "loading"})
    place.traffic(50, 50)
    place.show({3: "ready", 4: "ready"})
    place.traffic(50, 50)
    assert not place.sink.texts
    place.traffic(200, 0, seconds=120)
    place.traffic(50, 50, seconds=60)
    assert len(place.sink.texts) == 1


def test_pause_sends_everything_to_the_baseline(place: Place) -> None:
    place.deploy(_experiment(action="pause"))
    place.traffic(50, 50)
    assert place.model.paused
    assert place.model.weights == {4: 1000}
    place.control.commit(pause(place.model, False))
    place.traffic(50, 50)
    assert place.model.paused
    assert place.rulings().count(("bad", "pause")) == 2


def test_a_new_baseline_goes_back_to_the_one_before(place: Place) -> None:
    model = settled(deployed(deployed(None, 3), 4))
    place.deploy(model.change(candidate=4))
    assert (place.model.baseline, place.model.last_good) == (4, 3)
    place.traffic(0, 500)
    assert place.model.baseline == 3
    assert place.model.versions[4].rejected
    assert place.sink.texts[0].startswith("ranking/4: rolled back to 3; ")


def test_a_new_baseline_goes_back_to_one_that_a_host_is_loading_again(place: Place) -> None:
    place.deploy(settled(deployed(deployed(None, 3), 4)).change(candidate=4))
    place.show({3: "loading", 4: "ready"})
    place.traffic(0, 500)
    assert place.model.baseline == 3
    assert place.rulings() == [("bad", "rollback")]


def test_an_old_baseline_is_only_reported(place: Place) -> None:
    place.deploy(settled(deployed(deployed(None, 3), 4)).change(candidate=4))
    place.look()
    place.now += 7200
    place.traffic(0, 500)
    assert place.model.baseline == 4
    assert "as its probation is over (3 is loaded)" in place.sink.texts[0]


def test_a_first_baseline_cannot_be_rolled_back(place: Place) -> None:
    place.deploy(deployed(None, 4))
    place.traffic(0, 500)
    assert place.model.baseline == 4
    assert "no earlier version is loaded" in place.sink.texts[0]


def test_a_shadow_that_drifts_gets_no_more_mirrored_requests(place: Place) -> None:
    model = deployed(deployed(None, 3), 4, shadow=10_000)
    place.deploy(with_settings(model, GuardSettings(min_correlation=0.9)).model)
    for second in range(5):
        place.count(3, ok=1000 * second)
        place.shadows = {4: shadow_version(300 * second, correlation=0.6)}
        place.look()
    assert place.model.versions[4].shadow == 0
    assert "rank correlation 0.6000" in place.sink.texts[0]


def test_a_variant_within_its_limits_is_promoted(place: Place) -> None:
    place.deploy(_experiment(promote_after_s=20))
    place.traffic(100, 0, seconds=18)
    assert place.model.baseline == 3
    place.traffic(100, 0, seconds=8)
    assert (place.model.baseline, place.model.last_good) == (4, 3)
    assert ("promote", "promote") in place.rulings()


def test_the_guard_that_is_off_does_nothing(place: Place) -> None:
    place.deploy(_experiment(action="off"))
    place.traffic(0, 500, seconds=20)
    assert place.model.weights == {4: 1000}
    assert place.guard.watched("ranking") == {}


def test_changed_limits_count_at_once(place: Place) -> None:
    place.deploy(_experiment(error_percent=50.0))
    place.traffic(90, 10, seconds=10)
    assert place.model.weights == {4: 1000}
    place.control.commit(with_settings(place.model, GuardSettings()))
    place.look()
    assert place.model.weights == {}
