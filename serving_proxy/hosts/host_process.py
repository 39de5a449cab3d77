# SPDX-License-Identifier: Apache-2.0
"""A host that is to be kept running, and its process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass

from serving_proxy.state_dir.actual import process_ticks
from serving_proxy.store.repository import HostRow


@dataclass
class HostProcess:
    """A host that this proxy is to keep running, and its process if this proxy has started it."""

    name: str
    row: HostRow | None = None
    child: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    start_at: float = 0.0
    restarts: int = 0
    note: str = ""
    was_ready: bool = False
    adopted: bool = False
    drained: bool = False
    killed: str = ""

    @property
    def runs(self) -> bool:
        """Return whether there is a process that has not ended."""
        if self.child is not None:
            return self.child.poll() is None
        return self.row is not None and process_ticks(self.row.pid) == self.row.started_ticks

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self.row is not None and self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.row.pid, number)
