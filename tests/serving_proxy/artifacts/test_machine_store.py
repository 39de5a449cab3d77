# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.proxies.artifact_stores import TABLE_BYTES, Bucket, assert_same, store_of
from serving_proxy.artifacts import fetching
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.manifest import NAME, PART_BYTES
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import CancelledError, ExhaustedError, InvalidError, NotFoundError, UnavailableError
from serving_proxy.gates.fingerprint import fingerprint, seal_of

# What requests and responses contain besides the bytes of files.
OVERHEAD = 100_000


def sha256_of(folder: Path) -> str:
    return fingerprint(folder, lambda: False, lambda done, total: None).sha256


def test_fetch_artifact(bucket: Bucket, store: MachineStore, model_files: Path) -> None:
    url = bucket.put(model_files, "ranking/7")
    seen: list[tuple[int, int]] = []
    fetched = store.fetch(url, progress=lambda done, total: seen.append((done, total)))
    assert_same(model_files, fetched.path)
    assert fetched.sha256 == sha256_of(fetched.path)
    assert fetched.seal == seal_of(fetched.path)
    assert seen[-1] == (fetched.bytes, fetched.bytes) == (TABLE_BYTES + 5000, TABLE_BYTES + 5000)
    received = bucket.connection.received
    assert store.fetch(url) == fetched
    assert bucket.connection.received - received < OVERHEAD
    assert not [path for path in store.partial.iterdir() if path.suffix != ".lock"]


def test_fetch_folder_without_manifest(bucket: Bucket, store: MachineStore, model_files: Path) -> None:
    for path in model_files.rglob("*"):
        if path.is_file():
            open_store(parse_url(bucket.url, "url")).put(
                parse_url(bucket.url, "url") / f"plain/3/{path.relative_to(model_files)}", path
            )
    fetched = store.fetch(f"{bucket.url}/plain/3")
    assert_same(model_files, fetched.path)
    assert fetched.sha256 is None


def test_fetch_continues_after_break(
    bucket: Bucket, store: MachineStore, model_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put(model_files, "ranking/7")
    monkeypatch.setattr(fetching, "IN_FLIGHT", 1)
    bucket.connection.limit = bucket.connection.received + PART_BYTES + PART_BYTES // 2
    before = bucket.connection.received
    with pytest.raises(UnavailableError, match=r"s3://.*does not answer.*the next attempt continues"):
        store.fetch(url)
    bucket.connection.limit = None
    fetched = store.fetch(url)
    assert_same(model_files, fetched.path)
    # Only the part that was on the way when the connection broke is fetched twice.
    again = bucket.connection.received - before - TABLE_BYTES
    assert again < PART_BYTES // 2 + OVERHEAD


def test_fetch_continues_after_kill(bucket: Bucket, store: MachineStore, model_files: Path, tmp_path: Path) -> None:
    url = bucket.put(model_files, "ranking/7")
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from serving_proxy.artifacts import fetching\n"
        "from serving_proxy.artifacts.machine_store import MachineStore\n"
        "fetching.IN_FLIGHT = 1\n"
        "def progress(done, total):\n"
        f"    if done > 2 * {PART_BYTES}: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"store = MachineStore(Path({str(store.root)!r}), Path({str(tmp_path / 'state')!r}))\n"
        f"store.fetch({url!r}, progress=progress)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    # A part that was damaged by the end of the machine is noticed.
    (partial,) = (path for path in store.partial.iterdir() if path.with_name(f"{path.name}.parts").exists())
    with partial.open("r+b") as file:
        file.seek(PART_BYTES + 77)
        file.write(b"damaged")
    received = bucket.connection.received
    assert_same(model_files, store.fetch(url).path)
    assert bucket.connection.received - received < TABLE_BYTES - PART_BYTES + OVERHEAD


def test_two_processes_fetch_once(bucket: Bucket, store: MachineStore, model_files: Path, tmp_path: Path) -> None:
    url = bucket.put(model_files, "ranking/7")
    script = (
        "import sys; from pathlib import Path; from serving_proxy.artifacts.machine_store import MachineStore\n"
        f"print(MachineStore(Path({str(store.root)!r}), Path({str(tmp_path / 'state')!r})).fetch({url!r}).path)\n"
    )
    before = bucket.connection.received
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate()[0].strip() for process in both}
    assert len(paths) == 1
    assert_same(model_files, Path(paths.pop()))
    assert bucket.connection.received - before < TABLE_BYTES + OVERHEAD


def test_tables_are_shared(bucket: Bucket, store: MachineStore, model_files: Path, tmp_path: Path) -> None:
    other = tmp_path / "8"
    shutil.copytree(model_files, other)
    (other / "saved_model.pb").write_bytes(b"another graph")
    first = store.fetch(bucket.put(model_files, "ranking/7"))
    before = bucket.connection.received
    second = store.fetch(bucket.put(other, "ranking/8"))
    assert bucket.connection.received - before < OVERHEAD
    assert_same(other, second.path)
    assert os.path.samefile(first.path / "items.emb", second.path / "items.emb")
    assert seal_of(first.path) == first.seal


def test_damaged_files_are_fetched_again(
    bucket: Bucket, store: MachineStore, model_files: Path, tmp_path: Path
) -> None:
    url = bucket.put(model_files, "ranking/7")
    fetched = store.fetch(url)
    damage(fetched.path / "items.emb")
    assert_same(model_files, store.fetch(url).path)
    # As a bad sector does it, without a new time: found when another model links the table.
    table = store.fetch(url).path / "items.emb"
    found = table.stat()
    damage(table)
    os.utime(table, ns=(found.st_atime_ns, found.st_mtime_ns))
    other = tmp_path / "8"
    shutil.copytree(model_files, other)
    (other / "saved_model.pb").write_bytes(b"another graph")
    assert_same(other, store.fetch(bucket.put(other, "ranking/8")).path)


def damage(path: Path) -> None:
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(12345)
        file.write(b"damaged")


def test_half_artifact_is_refused(bucket: Bucket, store: MachineStore, tmp_path: Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "items.emb").write_bytes(os.urandom(1000))
    url = parse_url(bucket.put(folder, "half/1"), "url")
    remote = open_store(url)
    place = parse_url(f"{bucket.url}/blobs/{hashlib.sha256((folder / 'items.emb').read_bytes()).hexdigest()}", "url")
    remote.put(place, (folder / "items.emb").read_bytes()[:-100])
    with pytest.raises(InvalidError, match=rf"{place}: 900 bytes, expected 1000 of 'items.emb': half an"):
        store.fetch(str(url))
    remote.delete(place)
    with pytest.raises(NotFoundError, match=rf"{place}: missing, expected 1000 bytes.*upload it again"):
        store.fetch(str(url))
    remote.put(place, b"x" * 1000)
    with pytest.raises(InvalidError, match=r"bytes \d+ to \d+ are not those of 'items.emb'"):
        store.fetch(str(url))
    remote.delete(url / NAME)
    with pytest.raises(NotFoundError, match="nothing there, expected an artifact"):
        store.fetch(str(url))
    assert not list(store.models.iterdir())


def test_fetch_is_cancelled(bucket: Bucket, store: MachineStore, model_files: Path) -> None:
    url = bucket.put(model_files, "ranking/7")
    with pytest.raises(CancelledError):
        store.fetch(url, cancelled=lambda: True)
    assert_same(model_files, store.fetch(url).path)


def test_eviction_by_last_use(bucket: Bucket, model_files: Path, tmp_path: Path) -> None:
    folders = {number: tmp_path / str(number) for number in (1, 2, 3)}
    urls = {}
    for number, folder in folders.items():
        folder.mkdir()
        (folder / "saved_model.pb").write_bytes(b"graph %d" % number)
        (folder / "items.emb").write_bytes(os.urandom(1_000_000))
        urls[number] = bucket.put(folder, f"ranking/{number}")
    store = store_of(tmp_path, limit_bytes=2_100_000)
    first, second = store.fetch(urls[1]), store.fetch(urls[2])
    other = store_of(tmp_path, limit_bytes=2_100_000, user="other")
    with pytest.raises(ExhaustedError, match="limit of 2100000 bytes beside the models that are used"):
        other.fetch(urls[3])
    # What was fetched a moment ago is kept until the next time.
    store.retain([])
    store.retain([first.path])
    third = other.fetch(urls[3])
    assert_same(folders[3], third.path)
    assert_same(folders[1], first.path)
    assert not second.path.exists()
    assert len(list(store.blobs.iterdir())) == 2
    # A state directory that is gone needs nothing.
    shutil.rmtree(tmp_path / "other")
    store.fetch(urls[2])
    assert not third.path.exists()
