# SPDX-License-Identifier: Apache-2.0
"""Profiles that were given with versions: uploaded by content, fetched once, and removed after their version."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import put_artifact, store_of
from helpers.proxies.proxy_runs import write_model
from serving_proxy.artifacts.cleaning import clean_store
from serving_proxy.artifacts.given_profiles import fetch_profile, put_profile, remove_profile
from serving_proxy.artifacts.manifest import NAME
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import NotFoundError

DAY_S = 86400.0


@pytest.fixture
def root(tmp_path: Path) -> StoreUrl:
    return parse_url(f"file://{tmp_path}/bucket", "store")


def profile(folder: Path, text: str) -> Path:
    file = folder / f"{text}.json"
    file.write_text(text)
    return file


def keys(root: StoreUrl) -> set[str]:
    return {entry.key.removeprefix(f"{root.key}/") for entry in open_store(root).entries(root)}


def test_a_profile_is_uploaded_once_and_fetched_once(root: StoreUrl, tmp_path: Path) -> None:
    first, second = (str(root / f"ranking/{number}") for number in (1, 2))
    assert fetch_profile(root, first, store_of(tmp_path)) is None
    assert put_profile(root, first, profile(tmp_path, "one"))
    assert not put_profile(root, first, profile(tmp_path, "one"))
    assert put_profile(root, second, profile(tmp_path, "one"))
    assert len([key for key in keys(root) if key.startswith("blobs/")]) == 1
    machine = store_of(tmp_path)
    found = fetch_profile(root, first, machine)
    assert found is not None
    assert found.read_text() == "one"
    before = found.stat().st_ino
    again = fetch_profile(root, second, machine)
    assert again == found
    assert again.stat().st_ino == before
    assert put_profile(root, first, profile(tmp_path, "two"))
    other = fetch_profile(root, first, machine)
    assert other is not None
    assert other.read_text() == "two"
    remove_profile(root, first)
    assert fetch_profile(root, first, machine) is None


def test_a_profile_is_evicted_like_models(root: StoreUrl, tmp_path: Path) -> None:
    machine = store_of(tmp_path, limit_bytes=100_000)
    model = str(root / "ranking/1")
    put_profile(root, model, profile(tmp_path, "x" * 200))
    found = fetch_profile(root, model, machine)
    assert found is not None
    for _ in range(2):
        machine.retain([])
    large = write_model(tmp_path / "large")
    (large / "data").write_bytes(bytes(range(256)) * 390)
    put_artifact(large, root, root / "large/1")
    machine.fetch(str(root / "large/1"))
    assert not found.exists()


def test_a_cleaner_removes_profiles_of_versions_that_are_gone(root: StoreUrl, tmp_path: Path) -> None:
    store = open_store(root)
    for number in (1, 2):
        (write_model(tmp_path / str(number)) / "number").write_text(str(number))
        put_artifact(tmp_path / str(number), root, root / f"ranking/{number}")
        put_profile(root, str(root / f"ranking/{number}"), profile(tmp_path, f"of-{number}"))
    # Of a model in another place, which may still be there.
    put_profile(root, "s3://elsewhere/ranking/3", profile(tmp_path, "of-3"))
    assert clean_store(root, DAY_S, 0.0, removes=True).unused == ()
    store.delete(root / "ranking/1" / NAME)
    for now in (0.0, DAY_S):
        clean_store(root, DAY_S, now, removes=True)
    machine = store_of(tmp_path)
    assert fetch_profile(root, str(root / "ranking/1"), machine) is None
    for model in (str(root / "ranking/2"), "s3://elsewhere/ranking/3"):
        found = fetch_profile(root, model, machine)
        assert found is not None
        assert found.read_text() == f"of-{model[-1]}"
    assert len([key for key in keys(root) if key.startswith("profiles/given/models/")]) == 2
    # The version comes back: its profile is sent again.
    put_artifact(tmp_path / "1", root, root / "ranking/1")
    assert put_profile(root, str(root / "ranking/1"), profile(tmp_path, "of-1"))
    assert clean_store(root, DAY_S, 9 * DAY_S, removes=True).unused == ()
    assert fetch_profile(root, str(root / "ranking/1"), machine) is not None


def test_a_file_that_cannot_be_read_is_named(root: StoreUrl, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing\.json: not there, expected the file of a profile"):
        put_profile(root, str(root / "ranking/1"), tmp_path / "nothing.json")
