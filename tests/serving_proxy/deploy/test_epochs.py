# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from helpers.proxies.lifecycle_records import deployed, host, settled
from serving_proxy.cli.rendering import _remarks
from serving_proxy.counters.stats_file import live_text
from serving_proxy.deploy.adoption import adopt
from serving_proxy.deploy.changes import hold_epoch
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.deploy.epochs import check_epoch
from serving_proxy.deploy.explain import explain
from serving_proxy.deploy.options import DeployOptions
from serving_proxy.deploy.views import model_view
from serving_proxy.errors import NotFoundError, PreconditionError
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model, Settings

FOLLOWS = Settings(follow="/deltas/ranking")


@pytest.fixture
def following() -> Model:
    """A model whose only version follows a timeline."""
    return settled(deployed(None, 3, settings=FOLLOWS))


def with_live(epochs: tuple[int, int], name: str = "host-0", **more: Any) -> HostSeen:
    live = {"epoch": epochs[1], "oldest_epoch": epochs[0], "newest_epoch": epochs[1]} | more
    return replace(host({3: "ready"}, name), stats={"models": {"ranking": {"versions": {"3": {"live": live}}}}})


def rendered(model: Model) -> dict[str, Any]:
    return render({"ranking": model}, HostSettings())["models"]["ranking"]["versions"]["3"]


def test_hosts_are_told_the_timeline_and_the_epoch_at_which_to_stay(following: Model) -> None:
    assert rendered(following) == {"path": "/models/3", "follow": "/deltas/ranking"}
    change = hold_epoch(following, 3, 41)
    assert rendered(change.model) == {"path": "/models/3", "follow": "/deltas/ranking", "epoch": 41}
    assert [note.message for note in change.notes] == ["ranking/3: held at epoch 41"]
    assert hold_epoch(change.model, 3, 41).notes == (), "nothing changes"
    resumed = hold_epoch(change.model, 3, None)
    assert [note.kind for note in resumed.notes] == ["resume"]
    assert rendered(resumed.model) == rendered(following)


def test_a_lost_database_is_made_again_with_the_held_epoch(following: Model) -> None:
    held = hold_epoch(following, 3, 41).model
    version = adopt(render({"ranking": held}, HostSettings()), 0.0).models["ranking"].versions[3]
    assert (version.settings.follow, version.epoch) == ("/deltas/ranking", 41)


def test_deploying_again_keeps_the_held_epoch_unless_the_timeline_changes(following: Model) -> None:
    held = hold_epoch(following, 3, 41).model
    assert deployed(held, 3, settings=Settings(follow="/deltas/ranking", priority=2)).versions[3].epoch == 41
    assert deployed(held, 3, settings=Settings(follow="/deltas/other")).versions[3].epoch is None
    assert "follow" not in rendered(deployed(held, 3, settings=DeployOptions(follow="none").settings()))


def test_a_version_that_follows_nothing_cannot_be_held() -> None:
    model = settled(deployed(None, 3))
    with pytest.raises(PreconditionError, match=r"ranking/3: follows no timeline, expected a version .* with --follow"):
        hold_epoch(model, 3, 41)
    with pytest.raises(NotFoundError, match="ranking/9: not deployed"):
        hold_epoch(model, 9, 41)


def test_an_epoch_must_be_on_every_host_that_lives() -> None:
    hosts = [with_live((33, 41)), with_live((35, 42), "host-1"), replace(with_live((1, 2), "gone"), alive=False)]
    check_epoch(hosts, "ranking", 3, 41)
    check_epoch([*hosts, host({3: "ready"}, "host-2")], "ranking", 3, 35)
    with pytest.raises(PreconditionError, match="ranking/3: epoch 34 is not on host host-1, expected 35 to 42"):
        check_epoch(hosts, "ranking", 3, 34)
    with pytest.raises(PreconditionError, match="epoch 43 is not on host host-0, expected 33 to 41"):
        check_epoch(hosts, "ranking", 3, 43)


def test_views_show_the_held_epoch_and_what_hosts_have(following: Model) -> None:
    (version,) = model_view(hold_epoch(following, 3, 40).model, [with_live((33, 41), refused=2)]).versions
    assert version.epoch == 40
    live = {"epoch": 41, "oldest_epoch": 33, "newest_epoch": 41, "refused": 2}
    assert version.hosts["host-0"]["live"] == live


def test_explanations_tell_epoch_hold_and_refusal(following: Model) -> None:
    hosts = [with_live((33, 41), held=True, epoch=40, error="DATA_LOSS: damaged")]
    lines = explain(hold_epoch(following, 3, 40).model, hosts, 1).versions["3"]
    assert "It follows /deltas/ranking, and is held at epoch 40 until `rollback --resume`." in lines
    assert "host-0: epoch 40, held; the newest is 41; refused: DATA_LOSS: damaged." in lines
    shown = model_view(hold_epoch(following, 3, 40).model, hosts).model_dump()
    assert ("ranking/3", "epoch 40, held; the newest is 41; refused: DATA_LOSS: damaged") in _remarks(shown)


def test_texts_tell_what_hosts_have_yet_to_do() -> None:
    live = {"epoch": 41, "newest_epoch": 41, "knows_us": 1_000_000}
    assert re.fullmatch(r"epoch 41, as of \d{4}-\d\d-\d\d [\d:]+", live_text(live, None))
    assert live_text(live, 40).endswith("; to be held at epoch 40")
    held = {"epoch": 40, "newest_epoch": 41, "held": True}
    assert live_text(held, None) == "epoch 40, held; the newest is 41; to follow again"
    assert live_text(live | {"error": "damaged"}, 41, "host-0: damaged") == live_text(live, 41)
