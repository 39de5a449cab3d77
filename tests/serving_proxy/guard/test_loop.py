# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.guarded_host import GuardedHost
from helpers.proxies.host_statistics import shadow_version
from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.changes import pause, set_traffic
from serving_proxy.guard.loop import with_settings
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Model


@pytest.fixture
def place(tmp_path: Path) -> Iterator[GuardedHost]:
    made = GuardedHost(tmp_path)
    yield made
    made.lock.close()


def _experiment(**settings: Any) -> Model:
    model = deployed(deployed(None, 3), 4, traffic=1000)
    return with_settings(model, GuardSettings(**settings)).model


def test_a_bad_variant_loses_its_traffic_once_and_the_reason_is_kept(place: GuardedHost) -> None:
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


def test_a_good_variant_keeps_its_traffic(place: GuardedHost) -> None:
    place.deploy(_experiment())
    place.traffic(100, 0, seconds=90)
    assert place.model.weights == {4: 1000}
    assert place.rulings().count(("ok", "none")) == 2  # the baseline's and the variant's
    assert not place.sink.texts


def test_an_operator_may_try_again_and_the_guard_judges_anew(place: GuardedHost) -> None:
    place.deploy(_experiment())
    place.traffic(100, 100)
    assert place.model.weights == {}
    place.control.commit(set_traffic(place.model, {4: 500}, ()))
    place.traffic(100, 0, seconds=3)
    assert place.model.weights == {4: 500}
    place.traffic(0, 200)
    assert place.model.weights == {}
    assert place.rulings().count(("bad", "rollback")) == 2


def test_alert_alone_changes_nothing_and_comes_once_even_after_restarts(place: GuardedHost) -> None:
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


def test_pause_sends_everything_to_the_baseline(place: GuardedHost) -> None:
    place.deploy(_experiment(action="pause"))
    place.traffic(50, 50)
    assert place.model.paused
    assert place.model.weights == {4: 1000}
    place.control.commit(pause(place.model, False))
    place.traffic(50, 50)
    assert place.model.paused
    assert place.rulings().count(("bad", "pause")) == 2


def test_a_new_baseline_goes_back_to_the_one_before(place: GuardedHost) -> None:
    model = settled(deployed(deployed(None, 3), 4))
    place.deploy(model.change(candidate=4))
    assert (place.model.baseline, place.model.last_good) == (4, 3)
    place.traffic(0, 500)
    assert place.model.baseline == 3
    assert place.model.versions[4].rejected
    assert place.sink.texts[0].startswith("ranking/4: rolled back to 3; ")


def test_a_new_baseline_goes_back_to_one_that_a_host_is_loading_again(place: GuardedHost) -> None:
    place.deploy(settled(deployed(deployed(None, 3), 4)).change(candidate=4))
    place.show({3: "loading", 4: "ready"})
    place.traffic(0, 500)
    assert place.model.baseline == 3
    assert place.rulings() == [("bad", "rollback")]


def test_an_old_baseline_is_only_reported(place: GuardedHost) -> None:
    place.deploy(settled(deployed(deployed(None, 3), 4)).change(candidate=4))
    place.look()
    place.now += 7200
    place.traffic(0, 500)
    assert place.model.baseline == 4
    assert "as its probation is over (3 is loaded)" in place.sink.texts[0]


def test_a_first_baseline_cannot_be_rolled_back(place: GuardedHost) -> None:
    place.deploy(deployed(None, 4))
    place.traffic(0, 500)
    assert place.model.baseline == 4
    assert "no earlier version is loaded" in place.sink.texts[0]


def test_a_shadow_that_drifts_gets_no_more_mirrored_requests(place: GuardedHost) -> None:
    model = deployed(deployed(None, 3), 4, shadow=10_000)
    place.deploy(with_settings(model, GuardSettings(min_correlation=0.9)).model)
    for second in range(5):
        place.count(3, ok=1000 * second)
        place.shadows = {4: shadow_version(300 * second, correlation=0.6)}
        place.look()
    assert place.model.versions[4].shadow == 0
    assert "rank correlation 0.6000" in place.sink.texts[0]


def test_a_variant_within_its_limits_is_promoted(place: GuardedHost) -> None:
    place.deploy(_experiment(promote_after_s=20))
    place.traffic(100, 0, seconds=18)
    assert place.model.baseline == 3
    place.traffic(100, 0, seconds=8)
    assert (place.model.baseline, place.model.last_good) == (4, 3)
    assert ("promote", "promote") in place.rulings()


def test_the_guard_that_is_off_does_nothing(place: GuardedHost) -> None:
    place.deploy(_experiment(action="off"))
    place.traffic(0, 500, seconds=20)
    assert place.model.weights == {4: 1000}
    assert place.guard.watched("ranking") == {}


def test_changed_limits_count_at_once(place: GuardedHost) -> None:
    place.deploy(_experiment(error_percent=50.0))
    place.traffic(90, 10, seconds=10)
    assert place.model.weights == {4: 1000}
    place.control.commit(with_settings(place.model, GuardSettings()))
    place.look()
    assert place.model.weights == {}
