# SPDX-License-Identifier: Apache-2.0
"""Large models are hashed in a separate process, with the same result."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving_proxy.errors import CancelledError, InvalidError, UnavailableError
from serving_proxy.gates import hashing
from serving_proxy.gates.fingerprint import fingerprint
from serving_proxy.gates.hashing import fingerprint_apart


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hashing, "SMALL_BYTES", 1)
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 40_000)
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    return tmp_path


def test_the_separate_process_computes_the_same_hash(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    expected = fingerprint(folder, lambda: False, lambda done, total: None)
    assert fingerprint_apart(folder, lambda: False, lambda *far: told.append(far), None) == expected
    assert told
    assert all(done <= total == expected.bytes for done, total in told)
    assert fingerprint_apart(folder, lambda: False, lambda *far: None, "0") == expected


def test_a_cancelled_hash_process_ends(folder: Path) -> None:
    with pytest.raises(CancelledError):
        fingerprint_apart(folder, lambda: True, lambda *far: None, None)


def test_errors_of_the_hash_process_are_reported(folder: Path) -> None:
    (folder / "assets").symlink_to(folder / "nothing")
    with pytest.raises(InvalidError, match="assets"):
        fingerprint_apart(folder, lambda: False, lambda *far: None, None)
    (folder / "assets").unlink()
    with pytest.raises(UnavailableError, match="ended with 1, expected a hash"):
        fingerprint_apart(folder, lambda: False, lambda *far: None, "no CPUs")
