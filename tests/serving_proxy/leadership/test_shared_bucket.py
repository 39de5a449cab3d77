# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.system.programs import skip_or_fail
from helpers.system.s3 import Forwarder, s3_environment
from load_tests.fleet.s3 import BUCKET, s3_server
from serving_proxy.artifacts.folder_store import FolderStore
from serving_proxy.artifacts.urls import StoreUrl, parse_url
from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.shared_bucket import SharedBucket
from serving_proxy.leadership.shared_store import SharedStore, open_shared_store


@pytest.fixture
def connection(s3_port: int) -> Iterator[Forwarder]:
    made = Forwarder(s3_port)
    with s3_environment(made.port):
        yield made
    made.close()


@pytest.fixture
def store(connection: Forwarder, tmp_path: Path) -> SharedStore:
    return open_shared_store(f"s3://models/shared/{tmp_path.name}")


def test_object_is_created_once(store: SharedStore) -> None:
    assert store.get("log/1") is None
    assert store.numbers("log") == []
    assert store.create("log/1", b"first")
    assert not store.create("log/1", b"second")
    assert store.get("log/1") == b"first"
    store.put("log/1", b"third")
    assert store.get("log/1") == b"third"
    assert store.create("log/000000000012", b"")
    assert store.numbers("log") == [1, 12]
    store.remove("log/1")
    store.remove("log/1")
    assert store.numbers("log") == [12]


def test_bucket_that_cannot_be_reached_is_named(store: SharedStore, connection: Forwarder) -> None:
    store.put("log/1", b"")
    connection.limit = 0
    for act in (lambda: store.create("log/2", b""), lambda: store.get("log/1"), lambda: store.numbers("log")):
        with pytest.raises(UnavailableError, match=r"s3://models/shared/.*does not answer"):
            act()


def test_faults_of_the_bucket_are_not_those_of_requests_to_the_proxy(connection: Forwarder) -> None:
    store = open_shared_store("s3://no-such-bucket/shared")
    with pytest.raises(UnavailableError, match=r"no bucket .*the store that proxies share"):
        store.get("log/1")
    with pytest.raises(UnavailableError, match="no bucket"):
        store.create("log/1", b"")


class _Careless(FolderStore):
    """A store as some servers are, which ignore the condition of a request."""

    def create(self, url: StoreUrl, data: bytes) -> bool:
        self.put(url, data)
        return True


def test_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    store = SharedBucket(parse_url(f"file://{tmp_path}/store", "store"), _Careless())
    with pytest.raises(UnavailableError, match="overwrites an object that must not exist"):
        store.create("log/1", b"")
    assert store.numbers("log") == []


@pytest.mark.long
def test_of_many_that_create_an_object_at_once_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs versitygw: moto's server looks and writes in two steps."""
    if os.environ.get("VERSITYGW") is None and shutil.which("versitygw") is None:
        skip_or_fail("versitygw: in neither VERSITYGW nor PATH")
    # So that they are restored afterwards.
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    with s3_server(tmp_path):
        stores = [open_shared_store(f"s3://{BUCKET}/shared") for _ in range(4)]
        for number in range(200):
            won: list[int] = []
            start = threading.Barrier(len(stores))

            def create(of: int, name: str, start: threading.Barrier, won: list[int]) -> None:
                start.wait()
                if stores[of].create(name, str(of).encode() * 1000):
                    won.append(of)

            named = f"log/{number:012d}"
            threads = [threading.Thread(target=create, args=(of, named, start, won)) for of in range(len(stores))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            (winner,) = won
            assert stores[0].get(named) == str(winner).encode() * 1000
