# SPDX-License-Identifier: Apache-2.0
"""Remember which weights a timeline leads to, so that the next delta is made from the right export."""

from __future__ import annotations

import json
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.json_data import write_json

SCHEMA = "weights/1"
NAME = "weights.json"


def read_weights(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the weights of models, by the chain hash of their epochs; both are hexadecimal.

    Raises
    ------
    UnreadableError
        The file is damaged.
    """
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}, expected JSON") from error
    weights = data.get("weights") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(weights, dict):
        raise UnreadableError(f"{path}: another schema, expected {SCHEMA}")
    return {str(chain): str(digest) for chain, digest in weights.items()}


def write_weights(folder: Path, weights: dict[bytes, bytes]) -> None:
    """Replace the weights that a timeline remembers.

    Raises
    ------
    OSError
    """
    data = {"schema": SCHEMA, "weights": {chain.hex(): digest.hex() for chain, digest in weights.items()}}
    write_json(data, folder / NAME)
