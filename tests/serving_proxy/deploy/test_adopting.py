# SPDX-License-Identifier: Apache-2.0
"""A lost or emptied database unloads no model; `--discard-state` does."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ProxyProcess, ProxyThread, wait_for, write_model
from serving_proxy import Client
from serving_proxy.errors import PreconditionError

DATABASE = ("proxy.sqlite3", "proxy.sqlite3-wal", "proxy.sqlite3-shm")


def shown(client: Client) -> dict[str, Any]:
    """Return the deployed state as an operator sees it."""
    (found,) = client.status()["models"]
    keys = ("version", "state", "role", "traffic", "labels", "source", "path", "sha256", "bytes", "settings")
    versions = [{key: version[key] for key in keys} for version in found["versions"] if version["state"] != "stopped"]
    return {key: found[key] for key in ("baseline", "last_good", "layer", "labels", "paused")} | {"versions": versions}


def lose(proxy: ProxyProcess | ProxyThread) -> None:
    for name in DATABASE:
        (proxy.state_dir / name).unlink(missing_ok=True)


def deploy_three(client: Client, tmp_path: Path) -> None:
    for number in (3, 4, 5):
        client.deploy("ranking", write_model(tmp_path / "ranking" / str(number)), wait=True)
    client.promote("ranking", 4)
    wait_for(lambda: client.versions("ranking")["baseline"] == 4)
    client.deploy("ranking", tmp_path / "ranking" / "5", traffic=12.5, labels=["canary"], config={"session_num": 2})
    wait_for(lambda: shown(client)["labels"] == {"canary": 5})


@pytest.mark.parametrize("how", ["deleted", "emptied", "no file"])
def test_a_lost_database_is_rebuilt_from_desired_json(tmp_path: Path, how: str) -> None:
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            deploy_three(client, tmp_path)
            before, desired = shown(client), proxy.desired()
        (pid,) = proxy.host_pids()
        proxy.kill()
        if how == "emptied":
            with sqlite3.connect(proxy.state_dir / DATABASE[0]) as database:
                database.execute("DELETE FROM versions")
                database.execute("DELETE FROM models")
            database.close()
        else:
            lose(proxy)
        if how == "no file":
            # What a host keeps of it is as good.
            kept = proxy.state_dir / "hosts" / "host-0" / "accepted.json"
            kept.write_bytes((proxy.state_dir / "desired.json").read_bytes())
            (proxy.state_dir / "desired.json").write_text("{", encoding="utf-8")
        proxy.start()
        with proxy.client() as client:
            wait_for(lambda: shown(client) == before, what=f"{before}, not {shown(client)}")
            assert proxy.desired() == desired
            assert proxy.host_pids() == [pid], "the host went on"
            (event,) = [event for event in client.events(limit=100) if event["kind"] == "adopt"]
            assert event["message"].startswith("ranking: adopted from desired.json: versions 3, 4, 5, baseline 4")
            client.rollback("ranking")
            assert (shown(client)["baseline"], client.versions("ranking")["baseline"]) == (3, 3)
            client.promote("ranking", 5)
            wait_for(lambda: shown(client)["baseline"] == 5)
            client.deploy("ranking", write_model(tmp_path / "ranking" / "6"), wait=True)


def test_a_handwritten_desired_json_is_adopted(tmp_path: Path) -> None:
    proxy = ProxyThread(tmp_path)
    proxy.state_dir.mkdir()
    path = str(write_model(tmp_path / "m" / "7"))
    entry = {"baseline": 7, "labels": {"stable": 7}, "versions": {"7": {"path": path, "config": {"session_num": 3}}}}
    state = {"schema": 1, "generation": 41, "models": {"by_hand": entry}}
    (proxy.state_dir / "desired.json").write_text(json.dumps(state), encoding="utf-8")
    with proxy, proxy.client() as client:
        wait_for(lambda: shown(client)["versions"][0]["state"] == "ready")
        found = shown(client)
        assert (found["baseline"], found["labels"]) == (7, {"stable": 7})
        assert found["versions"][0]["settings"]["config"] == {"session_num": 3}
        assert proxy.desired()["models"]["by_hand"]["versions"]["7"]["path"] == path
        # Its files' signature counts for what comes after it.
        with pytest.raises(PreconditionError, match="expected the baseline's signature"):
            client.deploy("by_hand", write_model(tmp_path / "m" / "8", {"other": 1}), wait=True)


def test_an_unreadable_state_is_not_overwritten(tmp_path: Path) -> None:
    proxy = ProxyThread(tmp_path)
    proxy.state_dir.mkdir()
    for text in ("{", "[]", '{"models": 1}', "\x00"):
        (proxy.state_dir / "desired.json").write_text(text, encoding="utf-8")
        with pytest.raises(PreconditionError, match=r"desired\.json: .*expected models, .* --discard-state"):
            proxy.start()
        assert (proxy.state_dir / "desired.json").read_text(encoding="utf-8") == text
        (proxy.state_dir / "proxy.lock").unlink()


def test_discard_state_starts_without_models(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        proxy.kill()
        proxy.options.append("--discard-state")
        proxy.start()
        with proxy.client() as client:
            assert client.status()["models"] == []
            assert proxy.desired()["models"] == {}
            assert json.loads((proxy.state_dir / "desired.json.discarded").read_bytes())["models"]["ranking"]
            assert (proxy.state_dir / "proxy.sqlite3.discarded").exists()
            generation = json.loads((proxy.state_dir / "desired.json").read_bytes())["generation"]
            wait_for(lambda: client.status()["hosts"][0]["generation"] == generation)
            client.deploy("ranking", write_model(tmp_path / "4"), wait=True)
