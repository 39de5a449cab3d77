# SPDX-License-Identifier: Apache-2.0
"""Hosts of another release: what they cannot do is refused, and said."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy.errors import PreconditionError
from serving_proxy.records.features import FIRST

REFUSAL = r"ranking/2: needs version:limits, which host-0 \(release 9\.1\) lacks, expected hosts of a release that "


def set_features(folder: Path, *without: str) -> None:
    """Let the scripted host `host-0` report features."""
    path = folder / "hosts" / "host-0" / "features"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sorted(FIRST - {*without})), encoding="ascii")


def test_version_that_a_host_cannot_serve_is_refused_with_the_reason(tmp_path: Path) -> None:
    set_features(tmp_path / "state", "version:limits", "model:shadow")
    limits = {"max_in_flight": 5}
    with ProxyThread(tmp_path) as proxy, proxy.client() as client:
        client.deploy("ranking", write_model(tmp_path / "1"), wait=True, timeout=120)
        with pytest.raises(PreconditionError, match=REFUSAL):
            client.deploy("ranking", write_model(tmp_path / "2"), wait=True, timeout=120, limits=limits, traffic=10)
        assert list(proxy.desired()["models"]["ranking"]["versions"]) == ["1"]
        failed = client.versions("ranking")["versions"][-1]
        assert (failed["state"], failed["version"]) == ("failed", 2)
        assert client.status()["hosts"][0]["version"] == "9.1"
        with pytest.raises(PreconditionError, match="ranking: needs model:shadow"):
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True, timeout=120, shadow=10)
        # Once the host is upgraded, the same command succeeds.
        set_features(tmp_path / "state")

        def is_deployed() -> bool:
            # Until the host has reported its new features, the command is refused.
            with contextlib.suppress(PreconditionError):
                client.deploy("ranking", tmp_path / "2", wait=True, timeout=120, limits=limits, traffic=10)
            return "2" in proxy.desired()["models"]["ranking"]["versions"]

        wait_for(is_deployed)
        assert list(proxy.desired()["models"]["ranking"]["versions"]) == ["1", "2"]


def test_machine_of_an_older_release_does_not_get_what_it_cannot_serve(tmp_path: Path) -> None:
    with (
        ProxyThread(tmp_path, "--engine", "agents") as proxy,
        proxy.client() as client,
        Machine.of(proxy, "m-0"),
        Machine.of(proxy, "m-1") as old,
    ):
        client.deploy("ranking", write_model(tmp_path / "1"), wait=True, timeout=120)
        limits = {"max_in_flight": 5}
        client.deploy("ranking", write_model(tmp_path / "2"), wait=True, timeout=120, limits=limits, traffic=10)
        assert old.versions("ranking") == [1, 2]
        # The machine goes back to an earlier release.
        set_features(old.state_dir, "version:limits")
        wait_for(lambda: old.versions("ranking") == [1])
        assert old.desired()["models"]["ranking"]["routing"]["arms"] == []

        def is_said() -> bool:
            version = client.versions("ranking")["versions"][1]
            machine = client.status()["machines"][1]
            return (version["state"], machine["state"]) == ("failed", "failed")

        wait_for(is_said)
        said = "not on this machine: needs version:limits, which host-0 (release 9.1) lacks"
        assert said in client.versions("ranking")["versions"][1]["reason"]
        assert client.status()["machines"][1]["reason"] == f"ranking/2: {said}"
        # Changes of the model still reach both machines.
        client.guard("ranking", error_percent=3.0)
        wait_for(lambda: "guard" in old.desired()["models"]["ranking"].get("annotations", {}))
        set_features(old.state_dir)
        wait_for(lambda: old.versions("ranking") == [1, 2])
        wait_for(lambda: client.versions("ranking")["versions"][1]["state"] == "ready")
