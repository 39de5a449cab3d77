# SPDX-License-Identifier: Apache-2.0
"""Profiles of deployed versions go into the model store; a store in a folder, and the proxy's own records."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import store_of
from helpers.proxies.lifecycle_records import admitted
from serving_proxy.artifacts.given_profiles import fetch_profile
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.cores.given_profiles import GivenProfiles
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.remote_models import StoreOptions
from serving_proxy.records.models import Model
from serving_proxy.store import Database, Repository


@pytest.fixture
def root(tmp_path: Path) -> StoreUrl:
    return parse_url(f"file://{tmp_path}/bucket", "store")


@pytest.fixture
def url(root: StoreUrl) -> str:
    return str(root / "ranking/1")


def control_of(folder: Path, root: StoreUrl) -> Control:
    folder.mkdir()
    options = ControlOptions(folder, stores=StoreOptions(store=root))
    return Control(options, Repository(Database(folder / "proxy.sqlite3")))


def deployed(name: str, url: str, profile: Path | None, now: float = 1.0) -> Model:
    """Return a model with one version that was deployed from a store."""
    asked = Deployment(source=url, number=1, stamp="s", profile=None if profile is None else str(profile))
    model = admitted(deploy(Model(name=name), asked, (), now)[0].model, 1)
    return model.with_version(model.versions[1].model_copy(update={"stored": url}))


def profile(tmp_path: Path, text: str) -> Path:
    file = tmp_path / f"{text}.json"
    file.write_text(text)
    return file


def stored_text(root: StoreUrl, url: str, tmp_path: Path) -> str | None:
    found = fetch_profile(root, url, store_of(tmp_path))
    return None if found is None else found.read_text()


def events(control: Control, kind: str) -> list[str]:
    return [event.message for event in control.repository.events() if event.kind == kind]


def test_profile_of_one_of_two_versions_with_the_same_url_stays(tmp_path: Path, root: StoreUrl, url: str) -> None:
    control = control_of(tmp_path / "p1", root)
    given = GivenProfiles(control)
    control.store([deployed("a", url, profile(tmp_path, "one")), deployed("b", url, None, now=2.0)])
    for _ in range(3):
        asyncio.run(given.look())
        assert stored_text(root, url, tmp_path) == "one"
    assert events(control, "profile") == [f"a/1: its profile is in {root}"]
    # Of two that are given, the later deployment counts.
    control.store([deployed("b", url, profile(tmp_path, "two"), now=2.0)])
    for _ in range(2):
        asyncio.run(given.look())
        assert stored_text(root, url, tmp_path) == "two"
    control.store([deployed("a", url, None), deployed("b", url, None, now=2.0)])
    asyncio.run(given.look())
    assert stored_text(root, url, tmp_path) is None


def test_next_proxy_needs_no_file_whose_profile_is_in_the_store(tmp_path: Path, root: StoreUrl, url: str) -> None:
    file = profile(tmp_path, "one")
    first, second = (control_of(tmp_path / name, root) for name in ("p1", "p2"))
    first.store([deployed("a", url, file)])
    asyncio.run(GivenProfiles(first).look())
    file.unlink()
    # A second version, whose profile is in no store.
    other = str(root / "other/1")
    second.store([deployed("a", url, file), deployed("b", other, tmp_path / "nothing.json")])
    given = GivenProfiles(second)
    for _ in range(3):
        asyncio.run(given.look())
    (fault,) = events(second, "fault")
    assert fault.startswith("profile of b/1: ")
    assert "nothing.json: not there" in fault
    assert stored_text(root, url, tmp_path) == "one"
    second.store([deployed("a", url, None)])
    asyncio.run(given.look())
    assert stored_text(root, url, tmp_path) is None
