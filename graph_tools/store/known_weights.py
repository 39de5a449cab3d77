# SPDX-License-Identifier: Apache-2.0
"""Remember which weights a timeline leads to, so that the next delta is made from the right export."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.json_data import write_json

SCHEMA = "weights/1"
NAME = "weights.json"
_MOST = 1000


@dataclass(frozen=True)
class KnownWeights:
    """A state of a timeline, and the weights that it has.

    Attributes
    ----------
    epoch : int
    chain, sha256 : str
        Chain hash of the epoch, and SHA-256 of the weights, both in hexadecimal.
    """

    epoch: int
    chain: str
    sha256: str


def read_weights(folder: Path) -> list[KnownWeights]:
    """Return the states that a timeline remembers, the newest last.

    Raises
    ------
    UnreadableError
        The file is damaged.
    """
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise UnreadableError(f"{path}: schema {data['schema']}, expected {SCHEMA}")
        return [KnownWeights(int(known["epoch"]), known["chain"], known["sha256"]) for known in data["states"]]
    except FileNotFoundError:
        return []
    except UnreadableError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UnreadableError(f"{path}: {error!r}, expected states of schema {SCHEMA}") from error


def write_weights(folder: Path, states: list[KnownWeights]) -> None:
    """Replace the states that a timeline remembers; only the newest are kept.

    Raises
    ------
    OSError
    """
    write_json({"schema": SCHEMA, "states": [asdict(state) for state in states[-_MOST:]]}, folder / NAME)
