# SPDX-License-Identifier: Apache-2.0
"""Read the files of large models in a separate process: `python -m serving_proxy.gates.hashing FOLDER [CPUS]`.

A gigabyte takes a second or several of CPU time, which hosts on the same machine would lack. A thread with a low
priority would not help: while it has Python's lock but no CPU, the proxy stands still.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from serving_proxy.errors import CancelledError, InvalidError, UnavailableError
from serving_proxy.gates.fingerprint import Fingerprint, files_of, fingerprint, seal_of
from serving_proxy.workers.low_priority import lower_priority

#: Smaller models are read in less time than a process needs to start.
SMALL_BYTES = 64_000_000
_LOOK_S = 0.2


def fingerprint_apart(
    folder: Path,
    cancelled: Callable[[], bool],
    progress: Callable[[int, int], None],
    cpus: str | None,
    known: Mapping[Path, Fingerprint] | None = None,
) -> Fingerprint:
    """Read all files of a model as `fingerprint` does, without taking CPU time from serving.

    Parameters
    ----------
    folder, cancelled, progress
        As for `fingerprint`.
    cpus : str or None
        CPUs on which to read; None: in the idle time of all.
    known : mapping of Path to Fingerprint, optional
        By folder, what was found when it was read for another version; if its seal is the same, it is not read again.

    Raises
    ------
    CancelledError, InvalidError, UnavailableError
    """
    before = (known or {}).get(folder)
    if before is not None and seal_of(folder) == before.seal:
        return before
    try:
        small = sum(path.stat().st_size for path in files_of(folder)) < SMALL_BYTES
    except OSError:
        small = True  # `fingerprint` reports the error
    if small:
        return fingerprint(folder, cancelled, progress)
    command = [sys.executable, "-m", "serving_proxy.gates.hashing", str(folder), cpus or ""]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            for line in _lines(process, cancelled):
                if "error" in line:
                    raise InvalidError(line["error"])
                if "sha256" in line:
                    return Fingerprint(line["sha256"], line["bytes"], line["seal"])
                progress(line["done"], line["total"])
        finally:
            process.kill()
    raise UnavailableError(f"{folder}: the process that reads it ended with {process.returncode}, expected a hash")


def _lines(process: subprocess.Popen[bytes], cancelled: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Yield the lines that the process prints, until it ends."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    rest = b""
    while True:
        if cancelled():
            raise CancelledError("validation: cancelled")
        if not select.select([pipe], [], [], _LOOK_S)[0]:
            continue
        read = os.read(pipe, 65536)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from map(json.loads, lines)


class _Teller:
    """Prints the progress a few times a second."""

    def __init__(self) -> None:
        self._told = 0.0

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._told >= _LOOK_S:
            self._told = time.monotonic()
            print(json.dumps({"done": done, "total": total}), flush=True)


def main(folder: str, cpus: str) -> int:
    """Read a model and print its hash as a line of JSON; return 0 if that worked."""
    lower_priority(cpus or None)
    try:
        found = fingerprint(Path(folder), lambda: False, _Teller())
    except InvalidError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps({"sha256": found.sha256, "bytes": found.bytes, "seal": found.seal}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
