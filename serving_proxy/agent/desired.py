# SPDX-License-Identifier: Apache-2.0
"""The `desired.json` of a machine, which its agent writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serving_proxy.errors import ProxyError
from serving_proxy.system.files import read_regular, replace

_MOST_BYTES = 256 * 1024 * 1024
# A host that has never accepted a state is not ready because of its last key (hosts before 0.1 refuse that, and are not
# ready either). Without a file they would be ready at once, and serve nothing.
_WAITING = {"schema": 1, "generation": 0, "models": {}, "waiting": "for the first state of the proxy"}


class LocalDesired:
    """Writes what the hosts of this machine are to serve.

    Parameters
    ----------
    state_dir : Path
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "desired.json"
        self._text, self.body = self._read()

    def keep_hosts_waiting(self) -> None:
        """If there is no file yet, write one that keeps hosts from becoming ready.

        Raises
        ------
        ExhaustedError
        """
        if not self._path.exists():
            replace(self._path, json.dumps(_WAITING).encode() + b"\n")

    def write(self, generation: int, body: dict[str, Any]) -> bool:
        """Write the file if its content differs, and return whether it did.

        Raises
        ------
        ExhaustedError
            The disk is full; the file is unchanged.
        """
        found = {"schema": body.get("schema", 1), "generation": generation, **body}
        text = json.dumps(found, indent=1, allow_nan=False).encode() + b"\n"
        if text == self._text and self._path.exists():
            return False
        replace(self._path, text, spare=True)
        self._text, self.body = text, body
        return True

    def _read(self) -> tuple[bytes, dict[str, Any] | None]:
        try:
            text = read_regular(self._path, _MOST_BYTES)
            found = json.loads(text)
            if not isinstance(found, dict) or not isinstance(found.get("models"), dict) or "waiting" in found:
                return b"", None
        except (ProxyError, ValueError, RecursionError):
            return b"", None
        found.pop("generation", None)
        return text, found
