# SPDX-License-Identifier: Apache-2.0
"""`desired.json`: the file that tells hosts what to serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from serving_proxy.errors import ProxyError
from serving_proxy.system.files import read_regular, replace

_MOST_BYTES = 256 * 1024 * 1024


class DesiredFile:
    """Writes `desired.json`, with a generation that increases whenever the content changes.

    The generation is stored in this file only. If the file is lost, the hosts' generations are used.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "desired.json"
        self.generation, self._body = self._read()

    @property
    def body(self) -> dict[str, Any]:
        """Return the content without the generation."""
        return self._body or {}

    @property
    def has_models(self) -> bool:
        """Return whether there is anything to serve."""
        return bool(self._body and self._body.get("models"))

    def continue_after(self, generation: int) -> None:
        """Write the next content with a larger generation than one that is known from elsewhere."""
        if generation > self.generation:
            self.generation, self._body = generation, None

    def write(self, body: dict[str, Any], known_generation: int = 0) -> bool:
        """Write the content if it differs from the file's, and return whether it did.

        Parameters
        ----------
        body : dict
            The content without the generation.
        known_generation : int
            The highest generation that a host has applied.

        Raises
        ------
        ExhaustedError
            The disk is full; the file is unchanged, and the next call tries again.
        """
        generation = self.next_generation(body, known_generation)
        if generation is None:
            return False
        # Hosts would refuse a file that is not valid JSON, so NaN must not be written.
        text = json.dumps({"schema": body["schema"], "generation": generation, **body}, indent=1, allow_nan=False)
        replace(self.path, text.encode() + b"\n", spare=True)
        self.generation, self._body = generation, body
        return True

    def next_generation(self, body: dict[str, Any], known_generation: int = 0) -> int | None:
        """Return the generation with which a content would be written; None if it is the file's."""
        if body == self._body and self.path.exists():
            return None
        return max(self.generation, known_generation) + 1

    def _read(self) -> tuple[int, dict[str, Any] | None]:
        try:
            body = json.loads(read_regular(self.path, _MOST_BYTES))
            generation = int(body.pop("generation"))
        except (ProxyError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return 0, None
        return generation, body
