# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from processor import RequestBytes, max_request_bytes, set_max_request_bytes
from serving_proxy.host.http_body import BodyError, DisconnectedError, decompress, read_body


def _read(messages: list[dict[str, Any]], length: bytes | None = None, limit: int = 100) -> bytes:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        message = next(left, None)
        if message is None:
            await asyncio.sleep(60)
        assert message is not None
        return message

    return asyncio.run(read_body(receive, length, limit, 0.2, RequestBytes()))


def _part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize("sizes", [(0,), (100,), (1, 99), (50, 0, 50)])
def test_body_is_assembled_from_its_parts(sizes: tuple[int, ...]) -> None:
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


def test_a_disconnected_client_ends_the_request() -> None:
    with pytest.raises(DisconnectedError):
        _read([_part(b"a", True), {"type": "http.disconnect"}])


@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"x-gzip", b" deflate"])
@pytest.mark.parametrize("size", [0, 10, 70_000, 3_000_000])
def test_decompress(encoding: bytes, size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    packed = gzip.compress(body) if b"zip" in encoding.lower() else zlib.compress(body)
    assert asyncio.run(decompress(packed, encoding, 4_000_000, RequestBytes())) == body


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
        asyncio.run(decompress(body, encoding, 100, RequestBytes()))
    assert caught.value.status == status


@pytest.fixture
def small_budget() -> Iterator[int]:
    before = max_request_bytes()
    set_max_request_bytes(4 << 20)
    yield 4 << 20
    set_max_request_bytes(before)


def _status_of(coroutine: Coroutine[Any, Any, Any]) -> int:
    with pytest.raises(BodyError) as caught:
        asyncio.run(coroutine)
    assert (caught.value.retry_seconds is not None) == (caught.value.status == 429)
    return caught.value.status


def test_compressed_and_inflated_bodies_are_claimed(small_budget: int) -> None:
    bomb = gzip.compress(bytes(3 << 20), mtime=0)
    other, claim = RequestBytes(), RequestBytes()
    assert _status_of(decompress(bomb, b"gzip", 4 << 20, claim)) == 413, "more than half never fits"
    claim.release()
    small = gzip.compress(bytes(500_000), mtime=0)
    with other:
        other.grow_to(small_budget // 2 - 100_000)
        assert _status_of(decompress(small, b"gzip", 4 << 20, claim)) == 429
        claim.release()
        parts = [_part(bytes(50_000), more=i < 19) for i in range(20)]
        with pytest.raises(BodyError) as caught:
            _read(parts, limit=4 << 20)
        assert caught.value.status == 429
    with claim:
        assert asyncio.run(decompress(small, b"gzip", 4 << 20, claim)) == bytes(500_000)
        assert 500_000 < claim.held < 2_000_000
    assert claim.held == 0


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, (1 << 20) + 1])
def test_inflated_pieces_make_the_whole(size: int) -> None:
    body = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    for level in (0, 1, 9):
        packed = zlib.compress(body, level)
        assert asyncio.run(decompress(packed, b"deflate", size, RequestBytes())) == body
        assert _status_of(decompress(packed, b"deflate", size - 1, RequestBytes())) == 413


def test_an_abandoned_request_leaves_no_claim() -> None:
    bomb = gzip.compress(bytes(60 << 20), mtime=0)

    async def run() -> None:
        with RequestBytes() as claim:
            task = asyncio.ensure_future(decompress(bomb, b"gzip", 64 << 20, claim))
            # As soon as it inflates, which takes a while.
            while not claim.held:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            held = claim.held
            await asyncio.sleep(0.1)
            assert claim.held == held, "nobody inflates any more"

    asyncio.run(run())
