# SPDX-License-Identifier: Apache-2.0
"""Test the command in a process of its own: its output, and its files when it is stopped."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.graph_tools import cut_models
from helpers.graph_tools.cut_models import command, contents, environment


def ended(*arguments: object, preexec: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), preexec_fn=preexec, timeout=120
    )


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    return cut_models.build_sparse(tmp_path / "model")


def _while_verifying(source: Path, place: Path, number: signal.Signals) -> subprocess.Popen[str]:
    """Begin a cut that verifies for long, and send it a signal when its result is written and not yet in place."""
    process = subprocess.Popen(
        command("cut", source, place, "--samples", 200_000),
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 300
    while not list(place.parent.glob(f".{place.name}.*/{place.name}/saved_model.pb")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    return process


def test_stdout_contains_only_the_json(sparse: Path, tmp_path: Path) -> None:
    found = ended("cut", sparse, tmp_path / "out", "--samples", 2, "--json", "--report", tmp_path / "new" / "r.json")
    assert (found.returncode, found.stderr) == (0, "")
    data = json.loads(found.stdout)
    assert data["schema"] == "cut_report/1"
    assert json.loads((tmp_path / "new" / "r.json").read_text()) == data


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "error: interrupted; nothing was written\n"), (signal.SIGTERM, "")]
)
def test_a_cut_that_is_stopped_leaves_nothing(sparse: Path, tmp_path: Path, number: signal.Signals, said: str) -> None:
    before = contents(tmp_path)
    process = _while_verifying(sparse, tmp_path / "out", number)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (128 + number, "", said)
    assert contents(tmp_path) == before


def test_the_next_cut_removes_the_files_of_a_killed_one(sparse: Path, tmp_path: Path) -> None:
    before = contents(sparse)
    process = _while_verifying(sparse, tmp_path / "out", signal.SIGKILL)
    process.communicate(timeout=300)
    (left,) = tmp_path.glob(".out.*")
    assert not (tmp_path / "out").exists()
    assert cut_models.run("cut", sparse, tmp_path / "out", "--samples", 2).code == 0
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}
    assert contents(sparse) == before


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))


def test_full_disk(sparse: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    found = ended("cut", sparse, tmp_path / "new" / "out", preexec=_small_files)
    assert (found.returncode, found.stdout) == (1, "")
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path}/new/out")
    assert "File too large" in line
    assert ", expected room and permission" in line
    assert contents(tmp_path) == before


def test_a_closed_pipe_gives_no_traceback(sparse: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        command("inspect", sparse, "--json"), stdout=write, stderr=subprocess.PIPE, text=True, env=environment()
    )
    os.close(write)
    assert "Traceback" not in found.stderr
    assert found.returncode == 1


_SWALLOWED = """
import os, signal, sys, time
from graph_tools.cli.signals import end_on_signals

class Session:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)

end_on_signals()
try:
    Session()
    time.sleep(30)
    print("went on")
except (KeyboardInterrupt, SystemExit) as error:
    os.write(2, b"of a library\\n")
    print("ended by", type(error).__name__, file=sys.stderr)
"""


@pytest.mark.parametrize(("name", "error"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "SystemExit")])
def test_a_signal_that_python_swallows_ends_the_command_all_the_same(name: str, error: str) -> None:
    command = [sys.executable, "-c", _SWALLOWED.format(name=name)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    assert (found.stdout, found.stderr) == ("", f"ended by {error}\n")
