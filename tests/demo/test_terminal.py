# SPDX-License-Identifier: Apache-2.0
"""Check that steps are bars on a terminal and lines elsewhere, and that native output goes to a file."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from demo.terminal import Terminal


def test_step_is_one_line_without_a_terminal() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, width=80)).step("Train") as advance:
        advance(1, 2)
        assert out.getvalue() == ""
    assert out.getvalue().startswith("Train: 0.")
    assert out.getvalue().count("\n") == 1


def test_step_shows_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, width=80, force_terminal=True)).step("Train") as advance:
        advance(1, 2)
    assert "Train" in out.getvalue()
    assert "100%" in out.getvalue()


def test_step_that_fails_is_not_shown_as_done() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="stop"), Terminal(Console(file=out, width=80)).step("Train"):
        raise ValueError("stop")
    assert out.getvalue() == ""


def test_native_output_goes_to_the_log_and_python_output_stays_visible(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "native.log"
    code = f"""
import os, sys
from pathlib import Path
from demo.terminal import foreign_noise_to
with foreign_noise_to(Path({str(log)!r})):
    os.write(2, b"native noise\\n")
    print("from Python", file=sys.stderr)
os.write(2, b"native afterwards\\n")
print("Python afterwards", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stderr.splitlines() == ["from Python", "native afterwards", "Python afterwards"]
    assert log.read_text() == "native noise\n"
