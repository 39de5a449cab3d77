# SPDX-License-Identifier: Apache-2.0
"""Warm-up files of the proxy that are named by their content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from serving_proxy.artifacts.warmups import first_there, keep_copy


def given(tmp_path: Path) -> Path:
    """Return a file as an operator gives it."""
    file = tmp_path / "requests.bin"
    file.write_bytes(b"requests")
    return file


def test_file_is_found_where_this_proxy_has_it(tmp_path: Path) -> None:
    """Versions may name it where the proxy that led before had it, or several places."""
    copy = keep_copy(given(tmp_path), tmp_path / "warmups")
    assert copy == tmp_path / "warmups" / "given" / f"{hashlib.sha256(b'requests').hexdigest()[:32]}.bin"
    gone = Path("/of/another/proxy") / copy.name
    assert first_there([gone], tmp_path / "warmups") == copy
    assert first_there([gone, copy], tmp_path / "elsewhere") == copy
    assert first_there([gone], tmp_path / "elsewhere") == gone
    merged = copy.rename(tmp_path / "warmups" / copy.name)
    assert first_there([gone], tmp_path / "warmups") == merged


def test_copy_that_is_there_counts_as_new(tmp_path: Path) -> None:
    """So that it is not removed as unused before the version that it is for is deployed."""
    file, folder = given(tmp_path), tmp_path / "warmups"
    copy = keep_copy(file, folder)
    for named in (file, copy):
        os.utime(copy, (1000.0, 1000.0))
        assert keep_copy(named, folder) == copy
        assert copy.stat().st_mtime >= file.stat().st_mtime
    assert copy.read_bytes() == b"requests"
