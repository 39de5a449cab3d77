# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.changes import move, promote, undeploy
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.desired_state import HostSettings, render, worker_threads
from serving_proxy.records.models import Batching, Limits, Model, Settings, Tables
from serving_proxy.records.states import State

SETTINGS = Settings(
    config={"session_num": 2},
    warmup_file="/models/warm",
    cpuset="0;1",
    batching=Batching(mode="timed", max_rows=64),
    tables=Tables(tier="tiered", memory="4GB"),
    limits=Limits(max_queue=10),
    priority=2,
)


@pytest.fixture
def model() -> Model:
    made = deployed(deployed(None, 3), 4, traffic=1000, settings=SETTINGS, labels=("canary",), key_input="user_id")
    return settled(deployed(made, 5, shadow=500))


def test_a_model_with_everything(model: Model) -> None:
    assert render({"ranking": model}, HostSettings())["models"]["ranking"] == {
        "baseline": 3,
        "labels": {"canary": 4},
        "routing": {
            "layer": "ranking",
            "key": {"input": "user_id"},
            "arms": [{"version": 4, "offset": 0, "weight": 1000}],
            "paused": False,
        },
        "shadow": [{"version": 5, "weight": 500}],
        "versions": {
            "3": {"path": "/models/3"},
            "4": {
                "path": "/models/4",
                "config": {"session_num": 2},
                "warmup_file": "/models/warm",
                "cpuset": "0;1",
                "batching": {"mode": "timed", "max_rows": 64, "max_wait_us": 1000},
                "tables": {"tier": "tiered", "memory": "4GB"},
                "limits": {"max_queue": 10},
                "priority": 2,
            },
            "5": {"path": "/models/5"},
        },
    }


def test_resident_tables_have_no_limit() -> None:
    resident = deployed(None, 3, settings=Settings(tables=Tables(tier="resident")))
    versions = render({"ranking": resident}, HostSettings())["models"]["ranking"]["versions"]
    assert versions["3"]["tables"] == {"tier": "resident"}
    with pytest.raises(ValueError, match="memory is set, expected nothing: the tier is resident"):
        Tables(tier="resident", memory="4GB")


def test_a_held_version_has_no_traffic_unless_a_label_names_it(model: Model) -> None:
    held = settled(promote(model, 5).model)
    assert render({"m": held}, HostSettings())["models"]["m"]["versions"]["3"]["traffic"] is False
    named = held.change(published={"old": 3})
    assert "traffic" not in render({"m": named}, HostSettings())["models"]["m"]["versions"]["3"]


def test_a_model_without_versions_is_left_out(model: Model) -> None:
    assert render({"ranking": undeploy(model, None, 0.0).model}, HostSettings())["models"] == {}


def test_settings_of_hosts(model: Model) -> None:
    settings = HostSettings(
        memory_limit_bytes=5, maintenance_cpus="0", cpusets={"host-0": {"ranking/4": "1", "gone/1": "1"}, "host-1": {}}
    )
    body = render({"ranking": model}, settings)
    assert (body["memory_limit_bytes"], body["maintenance_cpus"]) == (5, "0")
    assert body["hosts"] == {"host-0": {"cpusets": {"ranking/4": "1"}}}


def test_versions_that_were_refused_have_their_reasons(model: Model) -> None:
    entered = deploy(model, Deployment(source="/models/6", number=6), (), 0.0)[0].model
    refused = move(
        entered, 6, State.FAILED, 0.0, "/models/6: no graph, expected a SavedModel", "INVALID_ARGUMENT"
    ).model
    body = render({"ranking": refused}, HostSettings())
    reason = {"status": "INVALID_ARGUMENT", "message": "/models/6: no graph, expected a SavedModel"}
    assert body["refused"] == {"ranking": {"6": reason}}
    assert "6" not in body["models"]["ranking"]["versions"]
    assert "refused" not in render({"ranking": undeploy(refused, 6, 0.0).model}, HostSettings())


def test_the_rendered_state_matches_the_published_schema(model: Model, repository: Path) -> None:
    schema = json.loads((repository / "docs" / "schemas" / "desired.schema.json").read_bytes())
    settings = HostSettings(memory_limit_bytes=5, maintenance_cpus="0", cpusets={"host-0": {"ranking/4": "1"}})
    entered = deploy(model, Deployment(source="/models/6", number=6), (), 0.0)[0].model
    refused = move(entered, 6, State.FAILED, 0.0, "no graph", "INVALID_ARGUMENT").model
    body = {"generation": 1, **render({"ranking": refused}, settings)}
    assert "refused" in body
    jsonschema.validate(body, schema)


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        (Settings(), 8),
        (Settings(config={"session_num": 3}), 3),
        (Settings(config={"worker_threads": 2}), None),
        (Settings(config={"execution": "inline"}), None),
        (Settings(config={"session_num": "x"}), None),
        (Settings(cpuset="0"), 8),
        (Settings(batching=Batching(mode="zero_wait")), None),
        (Settings(batching=Batching(mode="off")), 8),
    ],
)
def test_versions_get_threads_for_the_cpus_that_are_divided(settings: Settings, threads: int | None) -> None:
    assert worker_threads(settings, 8) == threads
    model = settled(deployed(None, 3, settings=settings))
    (version,) = render({"m": model}, HostSettings(divided_cpus=8))["models"]["m"]["versions"].values()
    assert version.get("config", {}) == settings.config | ({} if threads is None else {"worker_threads": threads})
    (version,) = render({"m": model}, HostSettings())["models"]["m"]["versions"].values()
    assert version.get("config", {}) == settings.config


@pytest.mark.parametrize("divided", [0, 8])
def test_changed_cpus_alone_do_not_reload_a_model(divided: int) -> None:
    host = HostSettings(divided_cpus=divided)
    rendered = []
    for cpuset in (None, "1", "0;1"):
        model = settled(deployed(None, 3, settings=Settings(config={"session_num": 2}, cpuset=cpuset)))
        (version,) = render({"m": model}, host)["models"]["m"]["versions"].values()
        assert version.pop("cpuset", None) == cpuset
        rendered.append(version)
    assert rendered[0] == rendered[1] == rendered[2]
