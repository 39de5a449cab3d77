# SPDX-License-Identifier: Apache-2.0
"""Models that read files: deploying them, and upgrading a proxy that has deployed them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import ProxyProcess, ProxyThread, wait_for, write_model
from serving_proxy import Client, messages
from serving_proxy.errors import InvalidError, PreconditionError

Make = Callable[..., Path]


def reading(folder: Path) -> Path:
    """Let the signature of a model read a file."""
    file = write_model(folder) / "saved_model.pb"
    message = messages.new("tensorflow.SavedModel")
    message.ParseFromString(file.read_bytes())
    (graph,) = message.meta_graphs
    graph.graph_def.node.add(name="path", op="Const")
    graph.graph_def.node.add(name="content", op="ReadFile", input=["path"])
    graph.signature_def["serving_default"].outputs["y"].name = "content:0"
    file.write_bytes(message.SerializeToString())
    return folder


def test_a_model_that_reads_files_is_refused_unless_that_is_permitted(
    proxy: ProxyThread, client: Client, name: str, tmp_path: Path
) -> None:
    folder = reading(tmp_path / "1")
    said = (
        r"signature 'serving_default' reaches ReadFile 'content', which reads files.*; --allow-op ReadFile permits it"
    )
    with pytest.raises(PreconditionError, match=said):
        client.deploy(name, folder, wait=True)
    assert name not in proxy.desired()["models"]
    with pytest.raises(PreconditionError, match=said):
        client.deploy(name, folder, allow_ops=["WriteFile"], wait=True)
    with pytest.raises(InvalidError, match=r"allow_ops 'Read': expected an op that is refused"):
        client.deploy(name, folder, allow_ops=["Read"])
    client.deploy(name, folder, allow_ops=["ReadFile"], wait=True)
    assert proxy.desired()["models"][name]["versions"]["1"]["path"] == str(folder)


def test_serve_permits_ops_to_every_model(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path, "--allow-op", "ReadFile") as proxy, proxy.client() as client:
        client.deploy("ranking", reading(tmp_path / "1"), wait=True)
        assert [event for event in client.events() if event["kind"] == "ops"] == []


def test_an_upgrade_keeps_deployed_models_and_warns_once(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            client.deploy("ranking", reading(tmp_path / "1"), allow_ops=["ReadFile"], wait=True)
            client.deploy("ranking", write_model(tmp_path / "2"), wait=True)
        proxy.stop()
        # As a proxy of before has kept it.
        with sqlite3.connect(proxy.state_dir / "proxy.sqlite3") as database:
            for number, record in database.execute("SELECT number, record FROM versions").fetchall():
                kept = {key: load for key, load in json.loads(record).items() if key not in {"ops", "allowed_ops"}}
                database.execute("UPDATE versions SET record = ? WHERE number = ?", (json.dumps(kept), number))
        database.close()
        for _ in range(2):
            proxy.start()
            with proxy.client() as client:
                told = wait_for(lambda: [event["message"] for event in client.events() if event["kind"] == "ops"])
                assert told == [
                    "ranking/1: signature 'serving_default' reaches ReadFile 'content', which reads files. It stays "
                    "deployed; another deployment needs --allow-op ReadFile"
                ]
                wait_for(lambda: client.versions("ranking")["versions"][0]["state"] == "ready")
                assert set(proxy.desired()["models"]["ranking"]["versions"]) == {"1", "2"}
            proxy.stop()
