# SPDX-License-Identifier: Apache-2.0
"""Create the requests that every host receives, as arrays and as bytes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from demo import wire
from demo.movielens import Features, MovieLens, Rows, features_of

CANDIDATES = 100
TIMED = 500
MODEL_NAME = "movielens"


@dataclasses.dataclass(frozen=True)
class Workload:
    """Contain requests of one size.

    Attributes
    ----------
    name : str
        For file names and results, for example "rank_100".
    rows_per_request : int
        The same for every request.
    rows : Rows
        The rows of all requests, one request after the other.
    held_out : ndarray [rows] bool
        True if the click is known and was not used for training; the other rows are only ranked.
    inputs : list of dict of ndarray [rows_per_request] bytes
        The requests as arrays.
    messages : list of bytes
        The same requests as serialized tensorflow.serving.PredictRequest.
    file : Path
        The messages, framed.
    timed_file : Path
        The first `TIMED` of them, which are sent repeatedly to measure time.
    """

    name: str
    rows_per_request: int
    rows: Rows
    held_out: NDArray[np.bool_]
    inputs: list[Features]
    messages: list[bytes]
    file: Path
    timed_file: Path

    @property
    def title(self) -> str:
        return "1 row" if self.rows_per_request == 1 else f"{self.rows_per_request} rows"


def single_rows(data: MovieLens, held_out: NDArray[np.int64], folder: Path) -> Workload:
    """Create one request per held-out row. `held_out` [n] int64 are row numbers in `data`."""
    rows = data.rows.take(held_out)
    return _workload("single", rows, np.ones(len(rows), np.bool_), 1, folder)


def ranked_candidates(data: MovieLens, held_out: NDArray[np.int64], folder: Path, seed: int = 11) -> Workload:
    """Create requests with `CANDIDATES` items per user: the held-out ones, and others drawn at random."""
    clicks = data.rows.clicks
    of_user: dict[str, dict[str, float]] = {}
    for row in held_out.tolist():
        user, item = (data.rows.features[name][row].decode() for name in ("user_id", "item_id"))
        of_user.setdefault(user, {})[item] = float(clicks[row])
    items, random = list(data.items), np.random.default_rng(seed)
    pairs: list[tuple[str, str]] = []
    labels: list[float] = []
    known: list[bool] = []
    for user, rated in of_user.items():
        drawn = [items[place] for place in random.permutation(len(items)).tolist()]
        others = [item for item in drawn if item not in rated][: max(0, CANDIDATES - len(rated))]
        for item in [*rated, *others][:CANDIDATES]:
            pairs.append((user, item))
            labels.append(rated.get(item, 0.0))
            known.append(item in rated)
    rows = Rows(features_of(pairs, data.users, data.items), np.array(labels, np.float32))
    return _workload(f"rank_{CANDIDATES}", rows, np.array(known), CANDIDATES, folder)


def _workload(name: str, rows: Rows, held_out: NDArray[np.bool_], size: int, folder: Path) -> Workload:
    inputs = [
        {feature: column[start : start + size] for feature, column in rows.features.items()}
        for start in range(0, len(rows), size)
    ]
    messages = [wire.encode_request(features, MODEL_NAME) for features in inputs]
    file, timed_file = folder / f"{name}.requests", folder / f"{name}_timed.requests"
    wire.write_framed(file, messages)
    wire.write_framed(timed_file, messages[:TIMED])
    return Workload(name, size, rows, held_out, inputs, messages, file, timed_file)
