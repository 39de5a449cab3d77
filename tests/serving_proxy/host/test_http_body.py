# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from serving_proxy.host.http_body import BodyError, DisconnectedError, decompress, read_body


def _read(messages: list[dict[str, Any]], length: bytes | None = None, limit: int = 100) -> bytes:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        message = next(left, None)
        if message is None:
            await asyncio.sleep(60)
        assert message is not None
        return message

    return asyncio.run(read_body(receive, length, limit, 0.2))


def _part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize("sizes", [(0,), (100,), (1, 99), (50, 0, 50)])
def test_body_is_put_together(sizes: tuple[int, ...]) -> None:
    parts = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
    messages = [_part(part, more=i + 1 < len(parts)) for i, part in enumerate(parts)]
    assert _read(messages) == b"".join(parts)


@pytest.mark.parametrize(
    ("messages", "length", "status"),
    [
        ([_part(bytes(101))], None, 413),
        ([_part(bytes(60), True), _part(bytes(41))], None, 413),
        ([], b"101", 413),
        ([], b"9" * 5000, 413),
        ([_part(b"a", True)], None, 408),
        ([], b"5", 408),
    ],
)
def test_body_that_is_refused(messages: list[dict[str, Any]], length: bytes | None, status: int) -> None:
    with pytest.raises(BodyError) as caught:
        _read(messages, length)
    assert caught.value.status == status


def test_client_that_goes_away() -> None:
    with pytest.raises(DisconnectedError):
        _read([_part(b"a", True), {"type": "http.disconnect"}])


@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"x-gzip", b" deflate"])
@pytest.mark.parametrize("size", [0, 10, 70_000, 3_000_000])
def test_decompress(encoding: bytes, size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    packed = gzip.compress(body) if b"zip" in encoding.lower() else zlib.compress(body)
    assert asyncio.run(decompress(packed, encoding, 4_000_000)) == body


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(bytes(101), mtime=0), b"gzip", 413),
        (gzip.compress(bytes(50_000_000), mtime=0), b"gzip", 413),
        (b"plain", b"gzip", 400),
        (gzip.compress(b"x", mtime=0)[:-1], b"gzip", 400),
        (gzip.compress(b"x", mtime=0) + b"y", b"gzip", 400),
        (b"", b"gzip", 400),
        (b"x", b"br", 415),
        (b"x", b"gzip, gzip", 415),
    ],
)
def test_decompress_refuses(body: bytes, encoding: bytes, status: int) -> None:
    with pytest.raises(BodyError) as caught:
        asyncio.run(decompress(body, encoding, 100))
    assert caught.value.status == status
