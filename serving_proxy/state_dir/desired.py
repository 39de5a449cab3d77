# SPDX-License-Identifier: Apache-2.0
"""`desired.json`: the one file by which the proxy tells hosts what to serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serving_proxy.errors import ProxyError
from serving_proxy.system.files import read_regular, replace

_MOST_BYTES = 256 * 1024 * 1024


class DesiredFile:
    """Writes `desired.json`, with a generation that rises whenever the content changes.

    The generation is kept in the file alone. Where that is lost, hosts know what they have applied.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "desired.json"
        self.generation, self._body = self._read()

    @property
    def has_models(self) -> bool:
        """Whether there is anything to serve."""
        return bool(self._body and self._body.get("models"))

    def write(self, body: dict[str, Any], known_generation: int = 0) -> bool:
        """Write the content if it is another than the file has, and say whether it was.

        Parameters
        ----------
        body : dict
            Everything but the generation.
        known_generation : int
            The highest that a host has applied.

        Raises
        ------
        ExhaustedError
            The disk is full; the file is as it was, and the next call tries again.
        """
        if body == self._body and self.path.exists():
            return False
        generation = max(self.generation, known_generation) + 1
        # What is no JSON would have every host refuse the file.
        text = json.dumps({"schema": body["schema"], "generation": generation, **body}, indent=1, allow_nan=False)
        replace(self.path, text.encode() + b"\n", spare=True)
        self.generation, self._body = generation, body
        return True

    def _read(self) -> tuple[int, dict[str, Any] | None]:
        try:
            body = json.loads(read_regular(self.path, _MOST_BYTES))
            generation = int(body.pop("generation"))
        except (ProxyError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return 0, None
        return generation, body
