# SPDX-License-Identifier: Apache-2.0
"""Agents that fetch what the proxy has put into a store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_tools.store.timeline import segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.models.live_models import START, publish
from helpers.proxies.agent_runs import Machine
from helpers.proxies.artifact_stores import assert_same, put_artifact, store_of
from helpers.proxies.proxy_runs import ProxyThread, environment_of_checkout, wait_for, write_model
from helpers.system.s3 import s3_environment
from serving_proxy.agent.artifacts import StoredArtifacts
from serving_proxy.agent.timelines import StoredTimelines
from serving_proxy.artifacts.timelines import TimelineUpload, is_copy
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import NotFoundError, PreconditionError
from serving_proxy.records.features import FIRST


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
        client.deploy("twin", "s3://models/fleet/ranking/7", wait=True, timeout=120)
        assert machine.desired()["models"]["twin"]["versions"]["7"]["path"] == entry["path"]
        client.deploy("after", str(write_model(tmp_path / "export" / "8")), wait=True, timeout=120)
        for name in ("ranking", "twin"):
            (version,) = client.versions(name)["versions"]
            assert version["state"] == "ready", name


@contextlib.contextmanager
def agent_without_credentials(proxy: ProxyThread, machine: Machine) -> Iterator[None]:
    """Run the agent of a machine as a process whose environment lacks the secret of the store."""
    command = [sys.executable, "-m", "serving_proxy", "agent", "--server", proxy.url, "--machine", machine.name]
    command += ["--token-file", str(machine.token_file), "--state-dir", str(machine.state_dir)]
    environment = {**os.environ, **environment_of_checkout(), "AWS_EC2_METADATA_DISABLED": "true"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.pop(name, None)
    # Where machines of EC2 would find a secret: nobody answers there.
    environment["AWS_METADATA_ENDPOINT"] = "http://127.0.0.1:9/metadata"
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_machine_without_credentials_ends_no_deployment_that_others_can_serve(tmp_path: Path) -> None:
    model = write_model(tmp_path / "export" / "7")
    (model / "slow").touch()
    options = ("--engine", "agents", "--model-store", "s3://models/one-machine")
    with (
        ProxyThread(tmp_path / "proxy", *options, host="none") as proxy,
        Machine.of(proxy, "good") as good,
        agent_without_credentials(proxy, bad := Machine.of(proxy, "bad")),
        contextlib.ExitStack() as ends,
        proxy.client() as client,
    ):
        bad.start_host()
        ends.callback(bad.__exit__, None, None, None)
        (bad.state_dir / "hosts" / "host-0").mkdir(parents=True, exist_ok=True)
        (bad.state_dir / "hosts" / "host-0" / "features").write_text("\n".join((*FIRST, "host:drained")))
        wait_for(lambda: len([host for host in client.status()["hosts"] if host["alive"]]) == 2)
        client.deploy("ranking", str(model))

        def version() -> tuple[str, str]:
            (found,) = client.versions("ranking")["versions"]
            return found["state"], found["reason"]

        _, reason = wait_for(lambda: "failed on bad" in version()[1] and version())
        assert (version()[0], reason.partition("; ")[0]) == ("loading", "on good/host-0")
        assert "failed on bad/host-0: s3://models/one-machine/ranking/7" in reason
        assert "credentials" in reason
        # The bad machine may have failed before the good one has its copy.
        copied = wait_for(lambda: good.desired()["models"].get("ranking"))
        Path(copied["versions"]["7"]["path"], "slow").unlink()
        with pytest.raises(PreconditionError, match=r"bad/host-0: .*credentials.*; ready on 1 of 2 hosts"):
            client.deploy("ranking", str(model), wait=True, timeout=60)
        assert [found["machine"] for found in client.endpoints("ranking")["endpoints"]] == ["good"]
        client.drain("bad")
        wait_for(lambda: version() == ("ready", ""))


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
