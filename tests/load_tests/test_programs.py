# SPDX-License-Identifier: Apache-2.0
"""Benchmarks refuse programs that were compiled from older sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from load_tests import bench_tiers
from load_tests._programs import StaleProgramError, check_is_current
from load_tests.tiers import training


def _write(path: Path, age_s: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (1_000_000 - age_s, 1_000_000 - age_s))
    return path


def test_a_program_older_than_a_source_is_refused(tmp_path: Path) -> None:
    program = _write(tmp_path / "bench" / "program", 10)
    source = _write(tmp_path / "src" / "deep" / "log.cc", 20)
    _write(tmp_path / "src" / "notes.md", 0)
    main = _write(tmp_path / "main.cc", 20)
    check_is_current(program, [tmp_path / "src", main], "make it")
    for changed in (source, main):
        _write(changed, 5)
        with pytest.raises(StaleProgramError, match=rf"{changed.name}.*run `make it`"):
            check_is_current(program, [tmp_path / "src", main], "make it")
        _write(changed, 20)


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StaleProgramError, match="not found; `make it` builds it"):
        check_is_current(tmp_path / "program", [_write(tmp_path / "a.cc", 0)], "make it")


def test_bench_tiers_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "PROGRAM", _write(tmp_path / "bench_row_log", 0))
    assert bench_tiers.main(["--only", "training", "--quick", "--folder", str(tmp_path / "tables")]) == 2
    assert "make bench-tiers" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()
