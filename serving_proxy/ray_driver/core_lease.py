# SPDX-License-Identifier: Apache-2.0
"""Hand out the CPUs of a machine: Ray counts CPUs, but does not say which ones.

Each CPU has a file, which the replica that has the CPU keeps locked. Its host inherits the open files, so that a CPU is
free once both have ended, for whatever reason; a restart of the machine frees all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from serving_proxy.cores.machine import Cpu, topology
from serving_proxy.system.cpus import format_cpus
from serving_proxy.system.files import open_private, private_folder


def lease_folder() -> Path:
    """Return the folder with the files of this user's CPUs."""
    return Path(tempfile.gettempdir()) / f"recprocessor-cores-{os.getuid()}"


class CoreLease:
    """The CPUs of one replica.

    Parameters
    ----------
    count : int
        Number of CPUs.
    folder : Path, optional

    Attributes
    ----------
    cpus : tuple of int
        Those that it has; empty if there were too few.
    note : str
        Why it has none.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        self._count = count
        self._folder = private_folder(folder or lease_folder(), "the folder of CPUs")
        self._files: dict[int, int] = {}
        self.note = ""

    @property
    def cpus(self) -> tuple[int, ...]:
        """Return the CPUs that it has."""
        return tuple(sorted(self._files))

    @property
    def text(self) -> str:
        """Return the CPUs as a list such as `0-1`."""
        return format_cpus(set(self._files))

    @property
    def files(self) -> tuple[int, ...]:
        """Return the open files, which a host is to inherit."""
        return tuple(self._files.values())

    def take(self, cpus: Iterable[Cpu] | None = None) -> None:
        """Take CPUs if there are enough that no other replica has.

        Parameters
        ----------
        cpus : iterable of Cpu, optional
            Those of the machine; by default those that this process may use.

        Raises
        ------
        ProxyError
            The files cannot be opened.
        """
        if self._files:
            return
        may_use = tuple(topology() if cpus is None else cpus)
        # One replica at a time, so that two of them do not each get half of what they need.
        with _locked(self._folder / "lock"):
            free = {cpu: file for cpu in may_use if (file := self._try(cpu.number)) is not None}
            chosen = choose(tuple(free), self._count)
            for cpu, file in free.items():
                if cpu in chosen:
                    self._files[cpu.number] = file
                else:
                    os.close(file)
        self.note = ""
        if not chosen:
            self.note = (
                f"{len(free)} of {len(may_use)} CPUs are free, expected {self._count}; its host runs on all of them"
            )

    def release(self) -> None:
        """Give the CPUs back; a host that has inherited them keeps them until it ends."""
        for file in self._files.values():
            os.close(file)
        self._files = {}

    def _try(self, number: int) -> int | None:
        file = open_private(self._folder / f"cpu-{number}")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        return file


def choose(free: Iterable[Cpu], count: int) -> tuple[Cpu, ...]:
    """Choose CPUs: of one socket if possible, and whole cores before halves of cores; empty if there are too few."""
    sockets: dict[int, dict[int, list[Cpu]]] = defaultdict(lambda: defaultdict(list))
    for cpu in free:
        sockets[cpu.package][cpu.core].append(cpu)
    sizes = {package: sum(map(len, cores.values())) for package, cores in sockets.items()}
    if sum(sizes.values()) < count:
        return ()
    # The smallest socket that has enough, so that larger ones stay for larger replicas; else the largest ones.
    order = sorted(sizes, key=lambda package: (sizes[package] < count, abs(sizes[package] - count), package))
    found: list[Cpu] = []
    for package in order:
        left = count - len(found)
        cores = sorted(sockets[package].values(), key=lambda core: (_misfit(len(core), left), core[0].core))
        found += [cpu for core in cores for cpu in sorted(core, key=lambda cpu: cpu.number)][:left]
    return tuple(found)


def _misfit(size: int, left: int) -> tuple[bool, int]:
    """Order cores: those that are taken as a whole come first, and the largest of them."""
    return (size > left, size if size > left else -size)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = open_private(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
