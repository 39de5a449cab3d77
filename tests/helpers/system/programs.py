# SPDX-License-Identifier: Apache-2.0
"""Build and run programs in tests: folders of this checkout, tools that may be missing, runs to the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "libprocessor" / "include"
LIBRARY = Path(os.environ.get("PROCESSOR_LIBRARY", ROOT / "processor" / "libprocessor.so")).resolve()
#: Options that link a program with the library. The last one spares the linker the symbols of TensorFlow's libraries,
#: which take it five seconds; the library itself was linked without it.
LINK = (f"-L{LIBRARY.parent}", "-lprocessor", f"-Wl,-rpath,{LIBRARY.parent}", "-Wl,--allow-shlib-undefined")


def require(*tools: str) -> None:
    """Skip the test if a tool is missing; fail it in CI."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        skip_or_fail(f"{', '.join(missing)}: not installed, so this host is not tested")


def skip_or_fail(message: str) -> NoReturn:
    """Skip the test, or fail it in CI, where everything is installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def prefer_python_path(folder: Path) -> None:
    """Let programs with `folder` in PYTHONPATH import from there, even if the checkout is installed in place.

    The finder of an editable install would otherwise come before PYTHONPATH.
    """
    code = "import sys\nfrom importlib.machinery import PathFinder\n\nsys.meta_path.insert(0, PathFinder)\n"
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")


def start_module(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start `python -m MODULE` in the checkout, in a process group of its own, as a terminal of 80 columns does."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A background job inherits an ignored SIGINT, unlike a job on a terminal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(command: Iterable[object], *, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its result with its output, which a failing assert then shows."""
    texts = [str(part) for part in command]
    return subprocess.run(texts, capture_output=True, text=True, timeout=timeout, check=False, **options)


def run_ok(command: Iterable[object], **options: Any) -> str:
    """Run a program that must succeed, and return its standard output."""
    ended = run(command, **options)
    assert ended.returncode == 0, f"{ended.args}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def build_environment() -> dict[str, str]:
    """Return the environment in which cgo finds the library of this checkout.

    With the variables of `make host-go`, so that no package is compiled again.
    """
    return os.environ | {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-O2 -I{INCLUDE}",
        "CGO_LDFLAGS": f"-L{LIBRARY.parent} -Wl,--allow-shlib-undefined",
        "GOFLAGS": f"-trimpath -ldflags=-extldflags=-Wl,-rpath,{LIBRARY.parent}",
    }


def write_pkg_config(folder: Path) -> None:
    """Write a recprocessor.pc for the library of this checkout."""
    (folder / "recprocessor.pc").write_text(
        f"Name: recprocessor\nDescription: of a checkout\nVersion: 0\nCflags: -I{INCLUDE}\nLibs: {' '.join(LINK)}\n"
    )


def run_python(code: str, *arguments: object, **environment: str) -> str:
    """Run a program that can import the helpers, in a separate process; return its output."""
    variables = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return run_ok([sys.executable, "-c", textwrap.dedent(code), *arguments], timeout=120, env=variables | environment)
