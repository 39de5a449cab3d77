# SPDX-License-Identifier: Apache-2.0
"""Positions and times of a trainer are checked, with errors that name the stream."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import UsageError
from graph_tools.store.trainer_progress import check_event_time, check_streams


def test_positions_are_integers_of_64_bits() -> None:
    found = check_streams({"clicks/0": np.int64(7), "clicks/1": 2**64 - 1, "ü": 0})
    assert found == {"clicks/0": 7, "clicks/1": 2**64 - 1, "ü": 0}
    assert {type(position) for position in found.values()} == {int}
    assert check_streams({}) == {}


@pytest.mark.parametrize("position", ["x", -5, 1.0, None, True, 2**64])
def test_other_positions_are_refused_by_the_name_of_their_stream(position: Any) -> None:
    with pytest.raises(UsageError, match=r"stream 'a/0': position .*, expected an integer from 0 to 2\^64 - 1"):
        check_streams({"b": 1, "a/0": position})


@pytest.mark.parametrize("name", ["", b"a", 3, "a" * 70_000, "\udc80"])
def test_names_that_segments_cannot_have_are_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="expected a string of 1 to 65535 bytes"):
        check_streams({name: 1})
    with pytest.raises(UsageError, match=r"streams: .*, expected a mapping"):
        check_streams([("a", 1)])  # type: ignore[arg-type]


def test_times_are_seconds_since_1970() -> None:
    now = time.time()
    assert [check_event_time(given) for given in (0, np.float32(1.5), now + 3600)] == [0.0, 1.5, now + 3600]
    for given in ("now", "5", None, True, -1, float("nan"), float("inf"), [1]):
        with pytest.raises(UsageError, match=r"event_time: .*, expected seconds since 1970"):
            check_event_time(given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"event_time: 1\d{12} is more than a day .*, not milliseconds"):
        check_event_time(now * 1000)
