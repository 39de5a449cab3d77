# SPDX-License-Identifier: Apache-2.0
"""Allow one build at a time in build/release: tests run in several processes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD = Path(__file__).resolve().parents[3] / "build" / "release"


@contextmanager
def build_lock() -> Iterator[Path]:
    """Yield the folder when no other process builds in it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield BUILD
