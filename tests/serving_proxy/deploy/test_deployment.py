# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from helpers.proxies.lifecycle_records import NOW, admitted, deployed, settled
from serving_proxy.deploy.changes import move, undeploy
from serving_proxy.deploy.deployment import Deployment, check_name, choose_number, deploy
from serving_proxy.errors import ExhaustedError, ExistsError, InvalidError, PreconditionError
from serving_proxy.records.models import Batching, BucketRange, Model, Settings
from serving_proxy.records.states import State

EMPTY = Model(name="ranking")


def ask(**values: object) -> Deployment:
    return Deployment.model_validate({"source": "/models/3", "stamp": "s", **values})


def test_the_first_version_is_the_baseline() -> None:
    change, number = deploy(EMPTY, ask(), (), NOW)
    assert (number, change.model.baseline) == (3, 3)
    assert change.model.versions[3].state == State.NEW
    assert [note.kind for note in change.notes] == ["deploy", "baseline"]


@pytest.mark.parametrize(
    ("source", "number", "expected"),
    [
        ("/models/ranking/7", None, 7),
        ("/models/ranking/007", None, 7),
        ("/models/ranking/0", None, 4),
        ("/models/ranking/current", None, 4),
        ("/models/ranking/99999999999999999999", None, 4),
        ("/models/ranking/7", 12, 12),
    ],
)
def test_number_of_a_version(source: str, number: int | None, expected: int) -> None:
    assert choose_number(deployed(None, 3), ask(source=source, number=number)) == expected


def test_an_unnumbered_folder_keeps_its_number_until_its_files_change() -> None:
    first, number = deploy(EMPTY, ask(source="/models/current"), (), NOW)
    assert number == 1
    assert deploy(first.model, ask(source="/models/current"), (), NOW)[1] == 1
    assert deploy(first.model, ask(source="/models/current", stamp="other"), (), NOW)[1] == 2


def test_repeating_changes_nothing() -> None:
    model = settled(deployed(deployed(None, 3), 4, traffic=1000, labels=("canary",), shadow=100))
    change, _ = deploy(
        model, ask(source="/models/4", number=4, traffic=1000, labels=("canary",), shadow=100), (), NOW + 9
    )
    assert change.model == model
    assert change.notes == ()


def test_other_settings_change_it_in_place() -> None:
    model = settled(deployed(None, 3))
    settings = Settings(batching=Batching(mode="zero_wait"))
    change, _ = deploy(model, ask(settings=settings), (), NOW)
    assert change.model.versions[3] == model.versions[3].model_copy(update={"settings": settings})
    assert [note.kind for note in change.notes] == ["settings"]


def test_settings_that_are_not_given_stay() -> None:
    model = settled(deployed(None, 3, settings=Settings(cpuset="0", priority=2), slo_p99_ms=20))
    change, _ = deploy(model, ask(settings=Settings(priority=0)), (), NOW)
    assert change.model.versions[3].settings == Settings(cpuset="0", priority=0)
    assert change.model.versions[3].slo_p99_ms == 20
    assert deploy(model, ask(), (), NOW)[0].model == model


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"source": "/other", "number": 3},
            "ranking/3: deployed from /models/3, expected that directory, or another version number",
        ),
        (
            {"stamp": "t"},
            "ranking/3: the files in /models/3 have changed since it was deployed, expected a new version number",
        ),
        ({"optimize": "auto"}, "ranking/3: deployed as it is, expected the same, or another version number"),
    ],
)
def test_another_model_under_the_same_number_is_refused(values: dict[str, str], said: str) -> None:
    with pytest.raises(ExistsError) as refused:
        deploy(deployed(None, 3), ask(**values), (), NOW)
    assert str(refused.value) == said


@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED])
def test_a_stopped_version_can_be_deployed_again(state: State) -> None:
    model, _ = deploy(EMPTY, ask(), (), NOW)
    ended = move(model.model, 3, state, NOW, "reason").model
    change, _ = deploy(ended, ask(source="/elsewhere/3", stamp="t"), (), NOW + 1)
    version = change.model.versions[3]
    assert (version.state, version.source, version.reason, version.path) == (State.NEW, "/elsewhere/3", "", None)


def test_traffic_makes_an_arm_and_keeps_those_of_others() -> None:
    model = deployed(deployed(deployed(None, 3), 4, traffic=1000), 5, traffic=500)
    assert model.arms == (
        BucketRange(version=4, offset=0, weight=1000),
        BucketRange(version=5, offset=1000, weight=500),
    )


def test_traffic_and_shadow_of_a_baseline_have_no_effect() -> None:
    model = deployed(None, 3, traffic=1000, shadow=1000)
    assert model.arms == ()
    assert model.versions[3].shadow == 0


def test_more_traffic_than_the_layer_has_is_refused() -> None:
    with pytest.raises(ExhaustedError):
        deploy(
            deployed(None, 3),
            ask(number=4, source="/models/4", traffic=2000),
            [BucketRange(version=1, offset=0, weight=9000)],
            NOW,
        )


def test_layer_cannot_change_under_an_experiment() -> None:
    model = deployed(deployed(None, 3), 4, traffic=1000)
    with pytest.raises(PreconditionError, match="has traffic in layer 'ranking', expected none when the layer becomes"):
        deploy(model, ask(layer="shared"), (), NOW)
    assert deploy(deployed(None, 3), ask(layer="shared"), (), NOW)[0].model.layer_name == "shared"


def test_a_new_version_takes_over_from_a_baseline_that_failed() -> None:
    broken, _ = deploy(EMPTY, ask(), (), NOW)
    model = deployed(move(broken.model, 3, State.FAILED, NOW).model, 4)
    assert model.baseline == 4


def test_a_new_version_does_not_take_over_from_one_that_works() -> None:
    assert deployed(settled(deployed(None, 3)), 4).baseline == 3


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "a b", "x" * 129, "é", "..", "a\n"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidError):
        check_name(name)
    with pytest.raises(InvalidError):
        deploy(Model(name=name), ask(), (), NOW)


def test_labels_are_checked() -> None:
    with pytest.raises(InvalidError, match="label 'a b'"):
        deploy(EMPTY, ask(labels=("a b",)), (), NOW)


def test_old_stopped_versions_are_forgotten() -> None:
    model = settled(deployed(None, 1))
    for number in range(2, 80):
        model = settled(undeploy(deployed(model, number), number, NOW + number).model)
    assert len(model.versions) <= 52
    assert 1 in model.versions
    assert 79 in model.versions


def test_a_draining_version_can_be_deployed_again() -> None:
    model = settled(deployed(deployed(None, 3), 4))
    draining = undeploy(model, 4, NOW).model
    assert draining.versions[4].state == State.DRAINING
    change, _ = deploy(draining, ask(source="/models/4", number=4), (), NOW)
    assert settled(admitted(change.model, 4)).versions[4].state == State.READY
