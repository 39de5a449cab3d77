# SPDX-License-Identifier: Apache-2.0
"""Stores in folders, read by this package and by fsspec's driver of local files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.artifact_stores import assert_same, put_artifact, store_of
from serving_proxy.artifacts.folder_store import FolderStore
from serving_proxy.artifacts.fsspec_store import FsspecStore
from serving_proxy.artifacts.store import Store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import DeniedError, InvalidError, NotFoundError, PreconditionError, UnavailableError


@pytest.fixture(params=["folder", "fsspec"])
def files(request: pytest.FixtureRequest) -> Store:
    return FolderStore() if request.param == "folder" else FsspecStore("local", "")


@pytest.fixture
def root(tmp_path: Path) -> StoreUrl:
    return parse_url(f"file://{tmp_path}/root", "url")


def test_objects(files: Store, root: StoreUrl, tmp_path: Path) -> None:
    assert files.entries(root) == files.folders(root) == []
    assert files.create(root / "a/1/x", b"first")
    assert not files.create(root / "a/1/x", b"second")
    (tmp_path / "y").write_bytes(b"0123456789")
    files.put(root / "a/2/y", tmp_path / "y")
    assert bytes(files.read(root / "a/1/x")) == b"first"
    assert bytes(files.read(root / "a/2/y", 3, 4)) == b"3456"
    assert files.folders(root / "a") == ["1", "2"]
    (entry,) = files.entries(root / "a/2")
    assert (entry.key, entry.bytes) == ((root / "a/2/y").key, 10)
    files.put(root / "a/2/y", b"others of another size")
    with pytest.raises(PreconditionError, match="written to while it was read"):
        files.read(root / "a/2/y", tag=entry.tag)
    files.delete(root / "a/2/y")
    files.delete(root / "a/2/y")
    with pytest.raises(NotFoundError, match=f"{root}/a/2/y: not there"):
        files.read(root / "a/2/y")
    assert [path.name for path in (tmp_path / "root").rglob("*") if path.is_file()] == ["x"]


def test_faults(files: Store, root: StoreUrl, tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"a file where a folder should be")
    with pytest.raises((UnavailableError, DeniedError, NotFoundError), match=str(root)):
        files.put(root / "a", b"x")


def test_list_follows_links_but_not_in_circles(root: StoreUrl, tmp_path: Path) -> None:
    store, elsewhere = FolderStore(), tmp_path / "elsewhere"
    store.put(root / "a/x", b"x")
    elsewhere.mkdir()
    (elsewhere / "artifact.json").write_bytes(b"{}")
    (tmp_path / "root" / "ranking").symlink_to(elsewhere)
    (tmp_path / "root" / "again").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "nowhere").symlink_to(tmp_path / "missing")
    keys = [entry.key.removeprefix(f"{root.key}/") for entry in store.entries(root)]
    assert keys == ["a/x", "again/artifact.json", "ranking/artifact.json"]


@pytest.mark.parametrize(("name", "hides"), [("ranking", True), ("lost+found", False)])
def test_folder_that_cannot_be_listed_is_an_error(
    root: StoreUrl, tmp_path: Path, name: str, hides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, scan = tmp_path / "root" / name, os.scandir

    def refuse(path: Path) -> Any:
        if Path(path) == hidden:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    hidden.mkdir(parents=True)
    # Permissions do not stop root.
    monkeypatch.setattr(os, "scandir", refuse)
    with (
        pytest.raises(DeniedError, match=f"{root}: {hidden}: Permission denied") if hides else contextlib.nullcontext()
    ):
        FolderStore().entries(root)


def test_artifact_in_a_folder(root: StoreUrl, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "saved_model.pb").write_bytes(b"graph")
    (model / "items.emb").write_bytes(b"rows")
    put_artifact(model, root, root / "ranking/7")
    assert_same(model, store_of(tmp_path).fetch(str(root / "ranking/7")).path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://x/y", "expected a path, or a URL with one of s3://"),
        ("s3:///y", "no bucket, expected s3://BUCKET/PATH"),
        ("file://elsewhere/y", "host 'elsewhere', expected file:///PATH"),
        ("s3://models/../y", "expected a path without"),
    ],
)
def test_urls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        parse_url(text, "url")


def test_driver_that_is_not_installed() -> None:
    with pytest.raises(InvalidError, match=r"nosuch://host: .*the driver of nosuch"):
        FsspecStore("nosuch", "host")
