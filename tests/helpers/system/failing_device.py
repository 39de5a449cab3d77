# SPDX-License-Identifier: Apache-2.0
"""A file system on a device whose end can be made to fail, as disks with bad sectors do.

It is a loop device. If the file behind it becomes shorter, the kernel answers reads of what is missing with EIO. Unlike
the error target of device-mapper, this works wherever file systems can be mounted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["FailingDevice", "mounted_device"]

_BYTES = 16 << 20
_BLOCK = 4096


class FailingDevice:
    """A mounted file system.

    Parameters
    ----------
    folder : Path
        Where it is mounted.
    image : Path
        The file behind the device.
    """

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self._image = image
        self._lost = b""
        self._begin = 0

    def fail_from(self, file: Path, offset: int) -> None:
        """Let reads of what a file has from an offset on fail, which must be in its last blocks of the device."""
        begin = _place_on_device(file, offset)
        with self._image.open("rb") as image:
            image.seek(begin)
            self._lost, self._begin = image.read(), begin
        os.truncate(self._image, begin)

    def recover(self) -> None:
        """Let all reads succeed again."""
        with self._image.open("r+b") as image:
            image.seek(self._begin)
            image.write(self._lost)


def _place_on_device(file: Path, offset: int) -> int:
    """Return where a byte of a file is on the device [bytes]; the file is in one piece."""
    listed = subprocess.run(["filefrag", "-v", f"-b{_BLOCK}", file], check=True, capture_output=True, text=True).stdout
    extents = [line for line in listed.splitlines() if line.split(":")[0].strip().isdigit()]
    assert len(extents) == 1, listed
    assert offset % _BLOCK == 0
    physical = int(extents[0].split(":")[2].split("..")[0])
    return physical * _BLOCK + offset


@contextlib.contextmanager
def mounted_device(folder: Path) -> Iterator[FailingDevice]:
    """Make and mount a file system; skip the test where this is not permitted."""
    tools = ["mkfs.ext4", "mount", "umount", "filefrag"]
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in tools):
        pytest.skip(f"a device that fails: expected root and {', '.join(tools)}")
    image, place = folder / "image", folder / "device"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-b", str(_BLOCK), image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a device that fails: {mounted.stderr.strip()}")
    device = FailingDevice(place, image)
    try:
        yield device
    finally:
        device.recover()
        subprocess.run(["umount", place], check=True)
