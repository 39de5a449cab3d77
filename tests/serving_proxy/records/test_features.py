# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from serving_proxy.records.features import FIRST, needs_of_model, needs_of_version, understood
from serving_proxy.records.hosts import HostSeen


def host(name: str, *without: str, more: tuple[str, ...] = (), **values: Any) -> HostSeen:
    features = (FIRST | {*more}) - {*without}
    return HostSeen(name, values.pop("alive", True), version="1.0", features=features, **values)


STATE = {
    "schema": 1,
    "later": 5,
    "models": {
        "a": {
            "baseline": 1,
            "versions": {"1": {"path": "/1"}, "2": {"path": "/2", "limits": {}, "needs": ["op:RecNew"]}},
        },
        "b": {"baseline": 1, "versions": {"1": {"path": "/1"}}, "shadow": []},
    },
}
NEWER = ("desired:later", "op:RecNew", "version:needs")


def test_needs_are_keys_and_what_the_entry_names() -> None:
    assert needs_of_version({"path": "/1", "needs": ["op:RecNew"]}) == {"version:path", "version:needs", "op:RecNew"}
    assert needs_of_model({"baseline": 1, "versions": {}}) == {"model:baseline", "model:versions"}


def test_hosts_that_can_do_everything_get_everything() -> None:
    for hosts in ([], [host("h", more=NEWER)], [host("old", alive=False), host("h", more=NEWER)]):
        found = understood(STATE, hosts)
        assert (found.desired, found.versions, found.left_out) == (STATE, {}, ())


def test_keys_that_a_host_would_refuse_the_state_for_are_left_out() -> None:
    found = understood(STATE, [host("new", more=NEWER), host("old", "model:shadow")])
    assert list(found.desired) == ["schema", "models"]
    assert list(found.desired["models"]["b"]) == ["baseline", "versions"]
    assert found.left_out == (
        "later is left out, as old (release 1.0) lacks desired:later",
        "b: shadow is left out, as old (release 1.0) lacks model:shadow",
    )
    # The other host serves it, and the old one refuses it alone.
    assert found.versions == {}


def test_version_that_no_host_can_serve_is_named() -> None:
    hosts = [host("old", more=("desired:later",)), host("older", more=("desired:later", "version:needs"))]
    found = understood(STATE, hosts)
    assert found.versions == {
        "a/2": "not on this machine: needs op:RecNew, version:needs, which old (release 1.0) lacks"
    }


def test_host_that_reports_nothing_has_the_first_features() -> None:
    found = understood(STATE, [HostSeen("h", True)])
    assert list(found.versions) == ["a/2"]
    assert "h (an earlier release) lacks" in found.versions["a/2"]
