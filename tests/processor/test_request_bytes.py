# SPDX-License-Identifier: Apache-2.0
"""Limit the memory of requests in flight from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import processor

MIB = 1 << 20


@pytest.fixture
def limit() -> Iterator[int]:
    before = processor.max_request_bytes()
    processor.set_max_request_bytes(16 * MIB)
    yield processor.max_request_bytes()
    processor.set_max_request_bytes(before)


def test_limit_of_request_bytes_is_set_and_checked(limit: int) -> None:
    assert limit == 16 * MIB
    with pytest.raises(processor.InvalidArgumentError, match="max_request_bytes_in_flight: 1000, expected 1048576 to"):
        processor.set_max_request_bytes(1000)
    processor.set_max_request_bytes(0)
    assert processor.max_request_bytes() >= 256 * MIB


def test_request_bytes_are_reserved_up_to_the_limit(limit: int) -> None:
    with processor.RequestBytes() as first, processor.RequestBytes() as second:
        first.grow_to(6 * MIB)
        first.grow_to(5 * MIB)
        assert first.held == 6 * MIB
        second.grow_to(65536)
        with pytest.raises(processor.ResourceExhaustedError, match="max_request_bytes_in_flight is 16777216"):
            second.grow_to(3 * MIB)
        assert second.held == 65536
        with pytest.raises(processor.InvalidArgumentError):
            second.grow_to(9 * MIB)
        first.release()
        second.grow_to(3 * MIB)
    assert (first.held, second.held) == (0, 0)


def test_model_refuses_requests_beyond_the_limit(limit: int, tiny_model: Path) -> None:
    rows = limit // 4
    with processor.Model(tiny_model, {"max_rows": rows}) as model:
        (name,) = model.signatures["serving_default"].inputs
        width = model.signatures["serving_default"].inputs[name].shape[1]
        x = np.ones((rows, width), np.float32)[:, ::1]
        copied = np.ones((rows, 2 * width), np.float32)[:, ::2]
        for array in (x[1:], copied):
            with pytest.raises((processor.InvalidArgumentError, processor.ResourceExhaustedError)):
                model.run({name: array})
        assert len(model.run({name: x[:100]})) > 0
        assert model.stats()["request_bytes"]["in_use"] == {"body": 0, "tensors": 0, "run": 0, "answer": 0}
        with pytest.raises(processor.InvalidArgumentError, match=f"{rows + 1} rows, expected at most {rows}"):
            model.run({name: np.ones((rows + 1, width), np.float32)})
