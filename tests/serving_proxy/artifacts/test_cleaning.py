# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import string
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import put_artifact
from helpers.system.s3 import s3_environment
from serving_proxy.artifacts.cleaning import clean_store
from serving_proxy.artifacts.manifest import NAME, read_artifact
from serving_proxy.artifacts.marks import Marks
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import InvalidError, UnavailableError

DAY_S = 86400.0


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUrl]:
    """An empty model store."""
    if request.param == "folder":
        yield parse_url(f"file://{tmp_path}/store", "store")
    else:
        with s3_environment(request.getfixturevalue("s3_port")):
            yield parse_url(f"s3://models/clean/{tmp_path.name}", "store")


def write(folder: Path, *contents: str) -> Path:
    """Write a model with a file for each content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_text("graph")
    for content in contents:
        (folder / f"{content}.emb").write_text(content * 100)
    return folder


def blobs(root: StoreUrl) -> set[str]:
    return {entry.key.rpartition("/")[2] for entry in open_store(root).entries(root / "blobs")}


def named(root: StoreUrl, *places: str) -> set[str]:
    """Return the blobs that artifacts name."""
    store = open_store(root)
    return {file.url.name for place in places for file in read_artifact(store, root / place).files}


def delete(root: StoreUrl, place: str) -> None:
    open_store(root).delete(root / place / NAME)


def test_what_no_artifact_names_is_marked_and_later_removed(root: StoreUrl, tmp_path: Path) -> None:
    for number, tables in ((1, "ab"), (2, "bc")):
        put_artifact(write(tmp_path / str(number), *tables), root, root / f"ranking/{number}")
    old = named(root, "ranking/1") - named(root, "ranking/2")
    delete(root, "ranking/1")

    seen = clean_store(root, DAY_S, 0.0, removes=False)
    assert ({each.sha256 for each in seen.unused}, seen.artifacts) == (old, 1)
    assert Marks(open_store(root), root).names() == set()
    for now in (0.0, DAY_S - 1.0):
        clean_store(root, DAY_S, now, removes=True)
        assert blobs(root) == old | named(root, "ranking/2")
    cleaned = clean_store(root, DAY_S, DAY_S, removes=True)
    assert [each.is_removed for each in cleaned.unused] == [True] * len(old)
    assert blobs(root) == named(root, "ranking/2")
    assert open_store(root).entries(root / "unused") == []


def test_what_is_uploaded_again_stays(root: StoreUrl, tmp_path: Path) -> None:
    model = write(tmp_path / "1", "a")
    put_artifact(model, root, root / "ranking/1")
    delete(root, "ranking/1")
    clean_store(root, DAY_S, 0.0, removes=True)
    put_artifact(model, root, root / "ranking/2")
    assert Marks(open_store(root), root).names() == set()
    assert clean_store(root, DAY_S, 9 * DAY_S, removes=True).unused == ()
    assert blobs(root) == named(root, "ranking/2")


def test_an_upload_waits_for_a_blob_that_is_being_removed_and_sends_it_again(root: StoreUrl, tmp_path: Path) -> None:
    model, store = write(tmp_path / "1", "a"), open_store(root)
    put_artifact(model, root, root / "ranking/1")
    (gone, *_) = sorted(named(root, "ranking/1"))
    delete(root, "ranking/1")
    clean_store(root, DAY_S, 0.0, removes=True)
    marks = Marks(store, root)
    uploading = threading.Thread(target=put_artifact, args=(model, root, root / "ranking/2"))
    with marks.claimed(gone, time.time()):
        with pytest.raises(UnavailableError, match="is being removed or kept"):
            Marks(store, root).remove(gone)
        uploading.start()
        store.delete(root / "blobs" / gone)
        marks.forget(gone)
    uploading.join(60)
    assert blobs(root) == named(root, "ranking/2")


def test_claims_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    root = parse_url(f"file://{tmp_path}/store", "store")
    store = open_store(root)
    store.put(root / "unused" / ("a" * 64 + ".claim"), b'{"by": "x", "since": 5.0}')
    clean_store(root, DAY_S, 3605.0, removes=True)
    assert len(store.entries(root / "unused")) == 1
    clean_store(root, DAY_S, 3606.0, removes=True)
    assert store.entries(root / "unused") == []


def test_nothing_is_removed_if_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    root = parse_url(f"file://{tmp_path}/store", "store")
    put_artifact(write(tmp_path / "1", "a"), root, root / "ranking/1")
    there = blobs(root)
    open_store(root).put(root / "ranking/1" / NAME, b'{"format": 1,')
    with pytest.raises(InvalidError, match=r"ranking/1/artifact.json: damaged"):
        clean_store(root, 0.0, DAY_S, removes=True)
    assert blobs(root) == there


def test_stores_without_conditional_requests_are_refused() -> None:
    with pytest.raises(InvalidError, match="expected a store with conditional requests"):
        clean_store(parse_url("hdfs://name/models", "store"), DAY_S, 0.0, removes=True)


def test_uploads_beside_a_cleaner_are_complete(tmp_path: Path) -> None:
    """Four publishers share tables, and remove most artifacts again; blobs go once they were marked for a second."""
    root = parse_url(f"file://{tmp_path}/store", "store")
    end, kept, faults = time.monotonic() + 5.0, set[str](), list[BaseException]()

    def publish(of: int) -> None:
        draw = random.Random(of)
        try:
            for number in range(10**6):
                if time.monotonic() > end:
                    return
                model = write(tmp_path / f"{of}-{number}", *draw.sample(string.ascii_lowercase, 2))
                begun = time.monotonic()
                put_artifact(model, root, root / f"{of}/{number}")
                # On a busy machine an upload may take longer than blobs stay marked, which nobody promises.
                if draw.random() < 0.95 or time.monotonic() - begun > 0.5:
                    delete(root, f"{of}/{number}")
                else:
                    kept.add(f"{of}/{number}")
                time.sleep(draw.random() / 4)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=publish, args=(of,)) for of in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        clean_store(root, 1.0, time.time(), removes=True)
    for thread in threads:
        thread.join()
    assert faults == []
    assert named(root, *kept) <= blobs(root)
    for now in (0.0, time.time()):
        clean_store(root, 0.0, now, removes=True)
    assert blobs(root) == named(root, *kept)
