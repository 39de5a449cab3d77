# SPDX-License-Identifier: Apache-2.0
"""Deploy models from a store, and put them into one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.proxies.artifact_stores import assert_same
from helpers.proxies.proxy_runs import ProxyThread, write_model
from helpers.system.s3 import s3_environment
from serving_proxy import Client
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.cli.app import app, load_commands
from serving_proxy.errors import DeniedError, ExistsError, InvalidError, NotFoundError, PreconditionError


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def storing_proxy(tmp_path_factory: pytest.TempPathFactory, s3_port: int, root: Path) -> Iterator[ProxyThread]:
    """A proxy with a model store in S3; models come from there or from the folder `root`."""
    options = ("--model-store", "s3://models/serving", "--model-root", str(root))
    with s3_environment(s3_port), ProxyThread(tmp_path_factory.mktemp("storing"), *options) as running:
        yield running


@pytest.fixture
def storing_client(storing_proxy: ProxyThread) -> Iterator[Client]:
    with storing_proxy.client() as made:
        yield made


def test_local_model_is_stored_and_deployed_elsewhere(
    storing_client: Client, storing_proxy: ProxyThread, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = write_model(root / "local" / "7")
    (model / "items.emb").write_bytes(b"rows" * 1000)
    storing_client.deploy("local", str(model), wait=True)
    entry = desired(storing_proxy, "local", 7)
    assert entry["path"] == str(model)
    assert entry["annotations"]["stored"] == "s3://models/serving/local/7"
    # Another proxy, as on another machine, serves what this one has put there.
    with ProxyThread(tmp_path_factory.mktemp("other")) as other, other.client() as client:
        client.deploy("local", "s3://models/serving/local/7", wait=True)
        there = desired(other, "local", 7)
        assert there["path"] != str(model)
        assert_same(model, Path(there["path"]))
        assert there["files"]["sha256"] == entry["files"]["sha256"]
        # The same version again, from the command line, changes nothing.
        load_commands()
        words = ["deploy", "local", "s3://models/serving/local/7", "--wait", "--server", other.url]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.stderr
        assert desired(other, "local", 7) == there


def test_other_files_under_a_number(storing_client: Client, storing_proxy: ProxyThread, root: Path) -> None:
    storing_client.deploy("twice", str(write_model(root / "twice" / "1")), wait=True)
    storing_client.undeploy("twice")
    storing_client.deploy("twice", str(write_model(root / "again" / "1", {"other": 1})), wait=True)
    entry = desired(storing_proxy, "twice", 1)
    assert entry["annotations"]["stored"] == f"s3://models/serving/twice/1-{entry['files']['sha256'][:12]}"


def test_changed_artifact_is_refused(storing_client: Client, tmp_path: Path) -> None:
    url = parse_url("s3://models/serving/plain/3", "url")
    store = open_store(url)
    store.put(url / "saved_model.pb", write_model(tmp_path / "a") / "saved_model.pb")
    storing_client.deploy("plain", str(url), wait=True)
    store.put(url / "saved_model.pb", write_model(tmp_path / "b", {"other": 1}) / "saved_model.pb")
    with pytest.raises(ExistsError, match=r"the files in s3://models/serving/plain/3 have changed"):
        storing_client.deploy("plain", str(url))


def test_refused_places(storing_client: Client) -> None:
    with pytest.raises(DeniedError, match=r"s3://elsewhere/x: outside of the permitted places.*--model-store"):
        storing_client.deploy("refused", "s3://elsewhere/x")
    with pytest.raises(NotFoundError, match=r"s3://models/serving/no/1: nothing there, expected an artifact"):
        storing_client.deploy("refused", "s3://models/serving/no/1")
    with pytest.raises(InvalidError, match="expected a path, or a URL with one of s3://"):
        storing_client.deploy("refused", "ftp://models/1")


def test_half_artifact_fails(storing_client: Client, tmp_path: Path) -> None:
    """The graph of a folder without a manifest is missing: the version fails, and says what is there."""
    url = parse_url("s3://models/serving/half/1", "url")
    open_store(url).put(url / "variables/variables.index", b"x")
    with pytest.raises((NotFoundError, PreconditionError), match=r"1 files, but neither artifact\.json nor"):
        storing_client.deploy("half", str(url), wait=True)


def test_profile_in_a_store(storing_client: Client, storing_proxy: ProxyThread, root: Path) -> None:
    model, url = write_model(root / "profiled" / "1"), parse_url("s3://models/serving/profile.json", "url")
    with pytest.raises(NotFoundError, match=f"{url}: not there"):
        storing_client.deploy("profiled", str(model), profile=str(url))
    open_store(url).put(url, b'{"of": "something else"}')
    with pytest.raises(InvalidError, match=r"models/profiles/[0-9a-f]{64}\.json.*expected"):
        storing_client.deploy("profiled", str(model), profile=str(url))
    (copy,) = (storing_proxy.state_dir / "models" / "profiles").iterdir()
    assert copy.read_bytes() == b'{"of": "something else"}'


def desired(proxy: ProxyThread, name: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = proxy.desired()["models"][name]["versions"][str(number)]
    return found
