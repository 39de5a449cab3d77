# SPDX-License-Identifier: Apache-2.0
"""A network of its own for processes, connected to this machine by one cable that can fall silent."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from types import TracebackType

__all__ = ["Network"]

# A hardware address that nobody has: packets to it are dropped by the receiver, and the sender learns nothing.
_NOBODY = "02:00:00:00:00:99"


class Network:
    """A network namespace with a pair of virtual interfaces; needs root and `ip`.

    Attributes
    ----------
    outside, inside : str
        Addresses of this machine and of the namespace.
    enter : list of str
        Begins a command that is to run in the namespace.
    """

    def __init__(self, number: int = 1) -> None:
        self._name = f"recp{os.getpid() % 100_000}"
        self._cables = (f"{self._name}o", f"{self._name}i")
        self.outside, self.inside = f"198.18.{number}.1", f"198.18.{number}.2"
        self.enter = ["ip", "netns", "exec", self._name]

    @staticmethod
    def is_possible() -> bool:
        """Return whether this process may make network namespaces."""
        made = ["unshare", "--net", "ip", "link", "add", "a0", "type", "veth", "peer", "name", "a1"]
        return (
            os.geteuid() == 0
            and all(map(shutil.which, ("ip", "unshare")))
            and subprocess.run(made, capture_output=True, check=False).returncode == 0
        )

    def __enter__(self) -> Network:
        outside, inside = self._cables
        _run("ip", "netns", "add", self._name)
        try:
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self._name)
            _run("ip", "address", "add", f"{self.outside}/30", "dev", outside)
            _run(*self.enter, "ip", "address", "add", f"{self.inside}/30", "dev", inside)
            _run("ip", "link", "set", outside, "up")
            for device in ("lo", inside):
                _run(*self.enter, "ip", "link", "set", device, "up")
        except BaseException:
            _run("ip", "netns", "delete", self._name)
            raise
        return self

    def fall_silent(self) -> None:
        """Drop all packets in both directions; connections stay open, and nobody is told."""
        _run("ip", "neigh", "replace", self.inside, "lladdr", _NOBODY, "nud", "permanent", "dev", self._cables[0])
        inside = ["ip", "neigh", "replace", self.outside, "lladdr", _NOBODY, "nud", "permanent", "dev", self._cables[1]]
        _run(*self.enter, *inside)

    def pids(self) -> list[int]:
        """Return the processes of the namespace."""
        found = subprocess.run(["ip", "netns", "pids", self._name], check=True, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def kill(self) -> None:
        """Kill all processes of the namespace."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def speak_again(self) -> None:
        """Let packets through again."""
        _run("ip", "neigh", "delete", self.inside, "dev", self._cables[0])
        _run(*self.enter, "ip", "neigh", "delete", self.outside, "dev", self._cables[1])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The interfaces end with their namespace.
        _run("ip", "netns", "delete", self._name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
