# SPDX-License-Identifier: Apache-2.0
"""The host of a replica gets one signal to finish its requests."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from serving_proxy.hosts.command import LaunchOptions
from serving_proxy.ray_driver.core_lease import CoreLease
from serving_proxy.ray_driver.host_keeper import HostKeeper


class Child:
    """A process that goes on whatever it is sent."""

    pid = 0

    def __init__(self) -> None:
        self.sent: list[signal.Signals] = []

    def poll(self) -> None:
        """Return nothing: it runs."""

    def send_signal(self, sent: signal.Signals) -> None:
        self.sent.append(sent)


def test_drained_host_gets_each_signal_once(tmp_path: Path) -> None:
    keeper: Any = HostKeeper(LaunchOptions(), tmp_path, CoreLease(0, tmp_path / "cores"))
    keeper._child = child = Child()
    keeper.drain()
    for _ in range(3):
        keeper.step()
    assert child.sent == [signal.SIGTERM]
    keeper._drain_since -= 60.0
    for _ in range(3):
        keeper.step()
    assert child.sent == [signal.SIGTERM, signal.SIGKILL]
