# SPDX-License-Identifier: Apache-2.0
"""What an agent knows when it is started again: the newest state that it has accepted, and where it has put files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving_proxy.errors import ProxyError
from serving_proxy.records.agents import MachineState
from serving_proxy.system.files import read_regular, replace

_MOST_BYTES = 256 * 1024 * 1024


@dataclass
class Memory:
    """The file `agent.json` of a state directory.

    Attributes
    ----------
    state : MachineState or None
        The newest state that was accepted.
    paths : dict of str to str
        Local path by `serving_proxy.agent.localize.file_key`.
    """

    file: Path
    state: MachineState | None = None
    paths: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, state_dir: Path) -> Memory:
        """Read the file; one that is missing or damaged counts as empty."""
        memory = cls(state_dir / "agent.json")
        try:
            found = json.loads(read_regular(memory.file, _MOST_BYTES))
            memory.paths = {str(path): str(local) for path, local in found["paths"].items()}
            memory.state = MachineState.model_validate(found["state"])
        except (ProxyError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            memory.state = None
        return memory

    @property
    def order(self) -> tuple[int, int]:
        """Return the (term, generation) of the newest state that was accepted."""
        return (0, 0) if self.state is None else self.state.order

    def write(self) -> None:
        """Write the file.

        Raises
        ------
        ExhaustedError
            The disk is full; the earlier file is unchanged.
        """
        found: dict[str, Any] = {"paths": self.paths, "state": self.state and self.state.model_dump()}
        replace(self.file, json.dumps(found, allow_nan=False).encode() + b"\n", spare=True)
