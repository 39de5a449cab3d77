# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from cost_model.profiling.profile import Profile, cpu_model, load_profile
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.cores.stored_profiles import StoredProfiles

GRAPH = "ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> StoreUrl:
    return parse_url(f"file://{tmp_path}/store", "store")


def measured(folder: Path, cpu: str, graph: str = GRAPH) -> Path:
    """Write a profile."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "measured.json"
    Profile(graph, cpu, {(1, 1): [100.0 + step for step in range(16)]}).save(file)
    return file


def test_another_machine_with_the_same_cpu_gets_a_profile(root: StoreUrl, tmp_path: Path) -> None:
    StoredProfiles(root).put(GRAPH, measured(tmp_path / "a", cpu_model()))
    found = StoredProfiles(root).fetch(GRAPH, tmp_path / "b")
    assert found is not None
    assert found.parent == tmp_path / "b"
    assert load_profile(found).fingerprint == GRAPH
    assert StoredProfiles(root).fetch("cd" * 32, tmp_path / "b") is None
    assert StoredProfiles(None).fetch(GRAPH, tmp_path / "b") is None


@pytest.mark.parametrize(("cpu", "graph"), [("another CPU", GRAPH), (cpu_model(), "cd" * 32)])
def test_a_profile_of_another_cpu_or_graph_is_not_used(root: StoreUrl, tmp_path: Path, cpu: str, graph: str) -> None:
    StoredProfiles(root).put(GRAPH, measured(tmp_path / "a", cpu, graph))
    assert StoredProfiles(root).fetch(GRAPH, tmp_path / "b") is None
    assert list((tmp_path / "b").glob("*.json")) == []


def test_a_damaged_profile_and_a_store_that_fails_cost_nothing_else(root: StoreUrl, tmp_path: Path) -> None:
    stored = StoredProfiles(root)
    stored.put(GRAPH, measured(tmp_path / "a", cpu_model()))
    (entry,) = open_store(root).entries(root)
    (Path("/") / entry.key).write_text('{"finger')
    assert stored.fetch(GRAPH, tmp_path / "b") is None
    (tmp_path / "file").write_text("")
    full = StoredProfiles(parse_url(f"file://{tmp_path}/file", "store"))
    full.put(GRAPH, measured(tmp_path / "a", cpu_model()))
    assert full.fetch(GRAPH, tmp_path / "b") is None
