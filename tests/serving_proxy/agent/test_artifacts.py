# SPDX-License-Identifier: Apache-2.0
"""Agents that fetch what the proxy has put into a store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_tools.store.timeline import segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.models.live_models import START, publish
from helpers.proxies.agent_runs import Machine
from helpers.proxies.artifact_stores import assert_same, put_artifact, store_of
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from helpers.system.s3 import s3_environment
from serving_proxy.agent.artifacts import StoredArtifacts
from serving_proxy.agent.timelines import StoredTimelines
from serving_proxy.artifacts.timelines import TimelineUpload, is_copy
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import NotFoundError, PreconditionError


@pytest.fixture(autouse=True)
def s3(s3_port: int) -> Iterator[None]:
    with s3_environment(s3_port):
        yield


def told(done: int, total: int) -> None: ...


def test_machine_fetches_what_the_proxy_has_stored(tmp_path: Path) -> None:
    model = write_model(tmp_path / "export" / "7")
    (model / "items.emb").write_bytes(b"rows" * 1000)
    options = ("--engine", "agents", "--model-store", "s3://models/fleet")
    with (
        ProxyThread(tmp_path / "proxy", *options, host="none") as proxy,
        Machine.of(proxy, "far") as machine,
        proxy.client() as client,
    ):
        wait_for(lambda: [host for host in client.status()["hosts"] if host["alive"]])
        client.deploy("ranking", str(model), wait=True)
        entry = machine.desired()["models"]["ranking"]["versions"]["7"]
        assert Path(entry["path"]).parent == machine.state_dir / "models" / "models"
        assert_same(model, Path(entry["path"]))
        # Another model with the same files, from the store: the machine has one folder for both.
        client.deploy("twin", "s3://models/fleet/ranking/7", wait=True, timeout=60)
        assert machine.desired()["models"]["twin"]["versions"]["7"]["path"] == entry["path"]
        client.deploy("after", str(write_model(tmp_path / "export" / "8")), wait=True, timeout=60)
        for name in ("ranking", "twin"):
            (version,) = client.versions(name)["versions"]
            assert version["state"] == "ready", name


def test_machine_copies_timelines_in_stores(tmp_path: Path) -> None:
    writer, url = TimelineWriter(tmp_path / "timeline", START, "a test"), "s3://models/deltas/fleet"
    entry = {"path": "/models/7", "follow": "/proxy/timelines/x", "annotations": {"followed": url}}
    plain = {"path": "/models/6", "follow": "/shared/timeline"}
    desired = {"schema": 1, "models": {"ranking": {"baseline": 7, "versions": {"6": plain, "7": entry}}}}

    async def run() -> None:
        timelines = StoredTimelines(tmp_path / "timelines")
        versions = timelines.localize(desired)["models"]["ranking"]["versions"]
        assert versions["6"] == plain
        folder = Path(versions["7"]["follow"])
        assert folder.parent == tmp_path / "timelines"
        assert is_copy(folder)
        publish(writer)
        TimelineUpload(writer.folder, parse_url(url, "url")).step()
        task = asyncio.create_task(timelines.run())
        async with asyncio.timeout(60):
            while not (folder / segment_name(1, 1)).exists():
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(run())


def test_other_files_than_deployed_are_refused(tmp_path: Path) -> None:
    root = parse_url("s3://models", "url")
    put_artifact(write_model(tmp_path / "1"), root, root / "refused/1")
    artifacts = StoredArtifacts(lambda: store_of(tmp_path))
    entry = {"path": "/elsewhere", "annotations": {"stored": "s3://models/refused/1"}}
    folder = asyncio.run(artifacts.fetch(entry, told))
    assert_same(tmp_path / "1", Path(folder))
    with pytest.raises(PreconditionError, match="expected 0000 as it was deployed"):
        asyncio.run(artifacts.fetch({**entry, "files": {"sha256": "0000"}}, told))
    with pytest.raises(NotFoundError, match="/elsewhere: not on this machine"):
        asyncio.run(artifacts.fetch({"path": "/elsewhere"}, told))
    asyncio.run(artifacts.retain([folder]))
    asyncio.run(artifacts.retain([folder]))
    assert Path(folder).is_dir()
