# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import put_artifact
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from helpers.system.s3 import s3_environment
from serving_proxy import Client
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.sources import remote_base_directory, watcher
from serving_proxy.sources.remote_base_directory import RemoteBaseDirectory


@pytest.fixture(autouse=True)
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(remote_base_directory, "PERIOD_S", 0.0)
    with s3_environment(s3_port):
        yield


def put_graph(url: StoreUrl, tmp_path: Path) -> None:
    open_store(url).put(url / "saved_model.pb", write_model(tmp_path / "graph") / "saved_model.pb")


def test_versions_at_rest(tmp_path: Path) -> None:
    base = parse_url("s3://models/rest", "url")
    directory = RemoteBaseDirectory(base)
    assert directory.look() == {}
    assert not directory.empty
    assert directory.look() == {}
    assert directory.empty
    root = parse_url("s3://models", "url")
    put_artifact(write_model(tmp_path / "1"), root, base / "1")
    put_graph(base / "2", tmp_path)
    open_store(base).put(base / "3/variables/variables.index", b"")
    open_store(base).put(base / "0/saved_model.pb", b"")
    first = directory.look()
    assert first is not None
    assert first.keys() == {1}
    assert directory.seen == {1, 2, 3}
    second = directory.look()
    assert second is not None
    assert {number: str(url) for number, (url, _) in second.items()} == {1: f"{base}/1", 2: f"{base}/2"}
    assert second[1] == first[1]
    assert directory.left_out.keys() == {"0", "3"}
    assert "neither artifact.json nor saved_model.pb" in directory.left_out["3"]
    open_store(base).put(base / "2/assets/words", b"")
    changed = directory.look()
    assert changed is not None
    assert changed.keys() == {1}
    assert directory.look()[2][1] != second[2][1]  # type: ignore[index]


def test_store_that_does_not_answer() -> None:
    with s3_environment(1):
        directory = RemoteBaseDirectory(parse_url("s3://models/rest", "url"))
        assert directory.look() is None
        assert directory.error is not None
        assert "does not answer" in directory.error


def test_configured_model_follows_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL_S", 0.05)
    base = parse_url("s3://models/configured", "url")
    put_artifact(write_model(tmp_path / "1"), parse_url("s3://models", "url"), base / "1")
    config = tmp_path / "models.config"
    config.write_text(f'model_config_list {{ config {{ name: "ranking" base_path: "{base}" }} }}')
    with ProxyThread(tmp_path / "proxy", "--config", str(config)) as proxy, proxy.client() as client:
        wait_for(lambda: ready(client) == {1})
        put_graph(base / "2", tmp_path)
        wait_for(lambda: 2 in ready(client))
        wait_for(lambda: proxy.desired()["models"]["ranking"]["baseline"] == 2)


def ready(client: Client) -> set[int]:
    """Return the versions that are ready; of none before the model is known."""
    versions = [version for model in client.status()["models"] for version in model["versions"]]
    return {version["version"] for version in versions if version["state"] == "ready"}
