# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from serving_proxy.agent.localize import (
    NO_WARMUP,
    file_key,
    inputs_key,
    localize,
    lost_warmups,
    of_machine,
    origin_of,
    wanted_files,
)

HASH = "a" * 64


def model(baseline: int, *numbers: int, **values: Any) -> dict[str, Any]:
    versions = {str(n): {"path": f"/models/{n}", "files": {"sha256": HASH, "seal": "s"}} for n in numbers}
    return {"baseline": baseline, "versions": versions, **values}


def state(**models: dict[str, Any]) -> dict[str, Any]:
    return {"schema": 1, "models": models}


def there(*numbers: int) -> dict[str, str]:
    return {f"/models/{n}#{HASH}": f"/store/{n}" for n in numbers}


def test_versions_get_the_paths_of_the_machine() -> None:
    body = localize(state(a=model(1, 1, 2)), there(1, 2), None)
    assert {number: entry["path"] for number, entry in body["models"]["a"]["versions"].items()} == {
        "1": "/store/1",
        "2": "/store/2",
    }


def test_version_without_files_is_left_out_with_everything_that_names_it() -> None:
    routing = {
        "layer": "l",
        "arms": [{"version": 2, "offset": 0, "weight": 5}, {"version": 3, "offset": 5, "weight": 5}],
    }
    wanted = model(1, 1, 2, 3, routing=routing, labels={"new": 2, "stable": 1}, shadow=[{"version": 2, "weight": 9}])
    desired = state(a=wanted) | {"hosts": {"host-0": {"cpusets": {"a/2": "1", "a/1": "0"}}}}
    found = localize(desired, there(1, 3), None)
    assert sorted(found["models"]["a"]["versions"]) == ["1", "3"]
    assert [arm["version"] for arm in found["models"]["a"]["routing"]["arms"]] == [3]
    assert found["models"]["a"]["labels"] == {"stable": 1}
    assert found["models"]["a"]["shadow"] == []
    assert found["hosts"] == {"host-0": {"cpusets": {"a/1": "0"}}}


def test_model_whose_baseline_is_missing_stays_as_it_was() -> None:
    before = localize(state(a=model(1, 1)), there(1), None)
    later = localize(state(a=model(2, 1, 2)), there(1), before)
    assert later["models"]["a"] == before["models"]["a"]
    assert localize(state(a=model(2, 2)), there(1), None)["models"] == {}


def test_other_files_under_a_number_replace_it_once_they_are_there() -> None:
    before = localize(state(a=model(1, 1, 2)), there(1, 2), None)
    wanted = state(a=model(1, 1, 2))
    wanted["models"]["a"]["versions"]["2"] = {"path": "/models/other"}
    assert localize(wanted, there(1, 2), before)["models"]["a"]["versions"]["2"]["path"] == "/store/2"
    after = localize(wanted, there(1) | {"/models/other": "/store/x"}, before)
    assert after["models"]["a"]["versions"]["2"]["path"] == "/store/x"


def test_key_of_files_contains_path_and_hash() -> None:
    (entry,) = wanted_files(state(a=model(1, 1))).values()
    assert file_key(entry) == f"/models/1#{HASH}"
    assert origin_of(file_key(entry)) == "/models/1"
    assert file_key({"path": "/m"}) == "/m" == origin_of("/m")


def test_machine_gets_the_settings_of_its_hosts() -> None:
    hosts = {"m/host-0": {"drained": True}, "other/host-0": {"later": 1}}
    assert of_machine({"models": {}, "hosts": hosts}, "m") == {"models": {}, "hosts": {"host-0": {"drained": True}}}
    assert of_machine({"models": {}, "hosts": hosts}, "third") == of_machine({"models": {}}, "m") == {"models": {}}


def test_version_waits_for_its_warm_up_file_and_is_served_without_one_that_is_lost() -> None:
    desired = state(a=model(1, 1, 2))
    file = f"/proxy/warmups/{'ab' * 16}.tfrecord"
    entry = desired["models"]["a"]["versions"]["2"]
    entry["warmup_file"] = file
    key = inputs_key(entry)
    assert list(localize(desired, there(1, 2), None, (), {})["models"]["a"]["versions"]) == ["1"]
    found = localize(desired, there(1, 2), None, (), {key: "/here/warmup"})["models"]["a"]["versions"]["2"]
    assert found["warmup_file"] == "/here/warmup"
    lost = {key: NO_WARMUP}
    assert "warmup_file" not in localize(desired, there(1, 2), None, (), lost)["models"]["a"]["versions"]["2"]
    assert lost_warmups(wanted_files(desired), lost) == ("a/2: warmup_file is left out, as the proxy does not have it",)


def test_needs_of_a_version_besides_its_files() -> None:
    assert inputs_key({"path": "/m", "warmup_file": "/shared/requests", "config": {"checkpoint_dir": "relative"}}) == ""
    copied = {"path": "/m", "follow": "/copies/x", "annotations": {"followed": "s3://models/deltas"}}
    assert inputs_key(copied) == ""
    assert inputs_key({"path": "/m", "follow": "/deltas"}) == '{"follow": "/deltas"}'
