# SPDX-License-Identifier: Apache-2.0
"""The guard returns a version that follows a timeline to its last good epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.guarded_host import GuardedHost
from helpers.proxies.lifecycle_records import deployed
from serving_proxy.deploy.changes import hold_epoch
from serving_proxy.guard.loop import with_settings
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Model, Settings

FOLLOWS = Settings(follow="/deltas/ranking")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[GuardedHost]:
    made = GuardedHost(tmp_path)
    yield made
    made.lock.close()


def _guarded(model: Model, **settings: Any) -> Model:
    return with_settings(model, GuardSettings(**{"action": "epoch", "window_s": 10, **settings})).model


def _answer(place: GuardedHost, seconds: int, nan: bool = False) -> None:
    """Answer 100 requests a second with version 3, whose scores are NaN or not."""
    for _ in range(seconds):
        before = place.counted.get(3, {}).get("scores", {"answers": 0, "nan": 0})
        done = before["answers"] + 100
        place.count(3, ok=done, scores=(done, before["nan"] + 100 * nan))
        place.look()


def _epoch(place: GuardedHost, number: int = 3) -> int | None:
    return place.model.versions[number].epoch


def _serve(place: GuardedHost, *epochs: int, seconds: int = 15) -> None:
    """Serve epochs, each for some seconds."""
    for epoch in epochs:
        place.serve_epoch(3, epoch)
        _answer(place, seconds)


def test_a_bad_epoch_is_left_for_the_last_one_that_was_within_its_limits(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(None, 3, settings=FOLLOWS)))
    _serve(place, 40, 41)
    place.serve_epoch(3, 42)
    _answer(place, 5, nan=True)
    assert _epoch(place) == 41
    assert place.rulings()[-1] == ("bad", "epoch")
    (alert,) = place.sink.texts
    assert alert.startswith("ranking/3: held at epoch 41, the last one within its limits; ")
    assert "NaN" in alert


def test_answers_of_the_bad_epoch_do_not_count_against_the_good_one(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(deployed(None, 2), 3, settings=FOLLOWS)).change(candidate=3))
    assert place.model.baseline == 3
    _serve(place, 41)
    place.serve_epoch(3, 42)
    _answer(place, 8, nan=True)
    place.serve_epoch(3, 41)
    # The last ones are counted after the host has reported the epoch.
    _answer(place, 2, nan=True)
    _answer(place, 15)
    assert (_epoch(place), place.model.baseline) == (41, 3)
    assert place.rulings()[-2:] == [("bad", "epoch"), ("ok", "none")]


def test_a_version_that_is_still_bad_at_the_earlier_epoch_is_rolled_back(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(deployed(None, 2), 3, settings=FOLLOWS)).change(candidate=3))
    place.serve_epoch(3, 42)
    _answer(place, 5, nan=True)
    assert _epoch(place) == 34, "no epoch is known to be good"
    assert "held at epoch 34, the oldest that hosts keep; " in place.sink.texts[0]
    place.serve_epoch(3, 34)
    _answer(place, 8, nan=True)
    assert place.model.baseline == 2
    assert place.rulings()[-2:] == [("bad", "epoch"), ("bad", "rollback")]


def test_a_host_that_cannot_serve_the_earlier_epoch_is_judged_where_it_is(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(deployed(None, 2), 3, settings=FOLLOWS)).change(candidate=3))
    _serve(place, 41)
    place.serve_epoch(3, 42)
    _answer(place, 25, nan=True)
    assert (_epoch(place), place.model.baseline) == (41, 3)
    _answer(place, 15, nan=True)
    assert place.model.baseline == 2


def test_epochs_that_have_not_changed_are_not_to_blame(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(None, 3, settings=FOLLOWS)))
    _serve(place, 41)
    _answer(place, 5, nan=True)
    assert _epoch(place) is None
    assert place.rulings()[-1] == ("bad", "alert")


def test_the_guard_acts_again_after_a_resume(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(None, 3, settings=FOLLOWS)))
    _serve(place, 41)
    place.serve_epoch(3, 42)
    _answer(place, 5, nan=True)
    _serve(place, 41)
    place.control.commit(hold_epoch(place.model, 3, None))
    _serve(place, 43)
    assert _epoch(place) is None
    place.serve_epoch(3, 44)
    _answer(place, 5, nan=True)
    assert _epoch(place) == 43


def test_only_the_action_epoch_changes_epochs(place: GuardedHost) -> None:
    place.deploy(_guarded(deployed(None, 3, settings=FOLLOWS), action="rollback"))
    _serve(place, 41)
    place.serve_epoch(3, 42)
    _answer(place, 5, nan=True)
    assert _epoch(place) is None
