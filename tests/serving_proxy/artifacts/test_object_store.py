# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import socket

import pytest

from helpers.proxies.artifact_stores import Bucket
from helpers.system.s3 import credentials_checked, s3_environment
from serving_proxy.artifacts.machine_store import MachineStore
from serving_proxy.artifacts.stores import open_store
from serving_proxy.artifacts.urls import parse_url
from serving_proxy.errors import NotFoundError, PreconditionError, UnauthenticatedError, UnavailableError


def test_objects(bucket: Bucket) -> None:
    root = parse_url(f"{bucket.url}/objects", "url")
    store = open_store(root)
    assert store.entries(root) == store.folders(root) == []
    assert store.create(root / "a/1/x", b"first")
    assert not store.create(root / "a/1/x", b"second")
    store.put(root / "a/2/y", b"0123456789")
    assert bytes(store.read(root / "a/1/x")) == b"first"
    assert bytes(store.read(root / "a/2/y", 3, 4)) == b"3456"
    assert bytes(store.read(root / "a/2/y", 8, 100)) == b"89"
    assert store.folders(root / "a") == ["1", "2"]
    (entry,) = store.entries(root / "a/2")
    assert (entry.key, entry.bytes) == ("objects/a/2/y", 10)
    assert bytes(store.read(root / "a/2/y", tag=entry.tag)) == b"0123456789"
    store.put(root / "a/2/y", b"other")
    with pytest.raises(PreconditionError, match="replaced while it was read"):
        store.read(root / "a/2/y", tag=entry.tag)
    store.delete(root / "a/2/y")
    with pytest.raises(NotFoundError, match=rf"{root}/a/2/y: not there"):
        store.read(root / "a/2/y")


@pytest.mark.parametrize(("code", "is_missing"), [("BlobNotFound", False), ("ContainerNotFound", True)])
def test_deleting_what_is_not_there_is_no_fault(
    bucket: Bucket, code: str, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 does not say that an object is missing, others do."""

    def refuse(*_: object) -> None:
        raise FileNotFoundError(f"Object at location a not found: status code: 404, body: <Code>{code}</Code>")

    url = parse_url(f"{bucket.url}/objects/a", "url")
    store = open_store(url)
    store.delete(url)
    monkeypatch.setattr("obstore.delete", refuse)
    with pytest.raises(NotFoundError, match="no bucket") if is_missing else contextlib.nullcontext():
        store.delete(url)


def test_missing_bucket(bucket: Bucket) -> None:
    url = parse_url("s3://no-such-bucket/ranking/7", "url")
    for act in (lambda: open_store(url).read(url), lambda: open_store(url).entries(url)):
        with pytest.raises(NotFoundError, match="no bucket 'no-such-bucket'"):
            act()


def test_unreachable_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = parse_url("s3://models/ranking/7", "url")
    message = rf"s3://models/ranking/7: the store does not answer .* http://127.0.0.1:{port} \(AWS_ENDPOINT_URL\)"
    with s3_environment(port), pytest.raises(UnavailableError, match=message):
        open_store(url).read(url)


def test_wrong_credentials(bucket: Bucket, s3_port: int, store: MachineStore) -> None:
    url = parse_url(f"{bucket.url}/ranking/7", "url")
    with credentials_checked(s3_port), s3_environment(s3_port, "a wrong secret"):
        with pytest.raises(UnauthenticatedError, match=r"s3://models/ranking/7/artifact.json: .*AWS_SECRET_ACCESS_KEY"):
            store.fetch(str(url))
        with pytest.raises(UnauthenticatedError, match="refuses the credentials"):
            open_store(url).entries(url)
