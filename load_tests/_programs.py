# SPDX-License-Identifier: Apache-2.0
"""Find and run the benchmark programs, and find the library that they measure."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "ProgramError",
    "StaleProgramError",
    "check_is_current",
    "find_go_program",
    "find_library",
    "find_program",
    "run_program",
]

ROOT = Path(__file__).resolve().parents[1]


class ProgramError(RuntimeError):
    """A benchmark program failed; `status` is its exit status, the text its standard error."""

    def __init__(self, name: str, status: int, text: str) -> None:
        super().__init__(f"{name} exited with status {status}: {text.strip()[-2000:] or 'no message'}")
        self.status = status


class StaleProgramError(RuntimeError):
    """A benchmark program is missing, or older than what it was compiled from."""


def check_is_current(program: Path, sources: Sequence[Path], command: str) -> None:
    """Check that a benchmark program is there and no older than its sources.

    Parameters
    ----------
    program : Path
    sources : sequence of Path
        Source files, and folders of them: all C++ files below count.
    command : str
        Command that builds it.

    Raises
    ------
    StaleProgramError
        If it is missing, or a source was changed later. The message names that source and the command.
    """
    if not program.is_file():
        raise StaleProgramError(f"{program}: not found; `{command}` builds it")
    files = [file for source in sources for file in ([source] if source.is_file() else source.rglob("*.*"))]
    newest = max((file for file in files if file.suffix in (".cc", ".h")), key=lambda file: file.stat().st_mtime_ns)
    if newest.stat().st_mtime_ns > program.stat().st_mtime_ns:
        raise StaleProgramError(f"{program}: older than {newest}, expected a program of this source; run `{command}`")


def find_program(name: str, folder: Path | None = None) -> Path:
    """Return the path of a benchmark program.

    Parameters
    ----------
    name : str
        "bench_serving" or "bench_lifecycle".
    folder : Path, optional
        Folder to search; otherwise PROCESSOR_BENCH_DIR, otherwise the build folders of this checkout.

    Returns
    -------
    path : Path

    Raises
    ------
    FileNotFoundError
        If none of them contains it; the message lists them.
    """
    if folder is None and "PROCESSOR_BENCH_DIR" in os.environ:
        folder = Path(os.environ["PROCESSOR_BENCH_DIR"])
    folders = [folder] if folder else [ROOT / "build" / "release" / "bench", ROOT / "build" / "release"]
    for candidate in folders:
        if (candidate / name).is_file():
            return candidate / name
    raise FileNotFoundError(f"{name}: not found in {', '.join(map(str, folders))}; `make build` builds it")


def find_go_program(name: str, root: Path = ROOT) -> Path:
    """Return the path of a program of the Go module of a checkout.

    Raises
    ------
    FileNotFoundError
        If it has not been built.
    """
    path = root / "build" / "host-go" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not found; `make host-go` builds it")
    return path


def find_library(path: Path | None = None) -> Path:
    """Return the path of libprocessor.so: the argument, otherwise PROCESSOR_LIBRARY, otherwise that of this checkout.

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    """
    found = path or Path(os.environ.get("PROCESSOR_LIBRARY", ROOT / "processor" / "libprocessor.so"))
    if not found.is_file():
        raise FileNotFoundError(f"{found}: no such library; `make build` builds it")
    return found.resolve()


def run_program(
    program: Path, arguments: Mapping[str, object], tick: Callable[[], None] = lambda: None, prefix: Sequence[str] = ()
) -> Any:
    """Run a benchmark program.

    Parameters
    ----------
    program : Path
    arguments : mapping
        Values by the name of the argument, without its dashes.
    tick : callable
        Called a few times a second while it runs.
    prefix : sequence of str
        Command to run it under, for example ("taskset", "-c", "0").

    Returns
    -------
    output : object
        The parsed JSON output.

    Raises
    ------
    ProgramError
        If the program failed.
    """
    command = [*prefix, str(program)]
    for name, value in arguments.items():
        command += [f"--{name}", str(value)]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=0.25)
                    break
                except subprocess.TimeoutExpired:
                    tick()
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise ProgramError(program.name, process.returncode, errors)
    return json.loads(output)
