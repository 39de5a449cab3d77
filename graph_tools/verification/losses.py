# SPDX-License-Identifier: Apache-2.0
"""Which keys of a table lose most where its rows are stored in fewer bits: requests that miss them prove little."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.tables.evaluate import evaluate_lookup
from graph_tools.tensors import Array, byte_size
from graph_tools.verification.tables import Pair

#: Keys of a table that are asked for.
MOST = 64
# Of a table that is looked at as a whole; of a larger one no row is preferred.
_BYTES = 256 << 20


def worst_keys(pairs: Iterable[Pair]) -> dict[str, Array]:
    """Return for each table that differs the keys [n] whose rows are furthest from what they were, the worst first.

    Keys that nobody can ask for are left out.
    """
    found: dict[str, Array] = {}
    for pair in pairs:
        parts = pair.source.parts
        if not parts or sum(byte_size(part.rows) for part in parts) > _BYTES:
            continue
        keys = np.concatenate([part.keys.read() for part in parts])
        rows = np.concatenate([part.rows.read() for part in parts]).astype(np.float64)
        apart = np.abs(rows - evaluate_lookup(pair.result, keys).astype(np.float64)).max(axis=1, initial=0.0)
        apart[~np.isfinite(apart)] = 0.0
        order = np.argsort(-apart, kind="stable")[:MOST]
        order = order[apart[order] > 0]
        if len(order):
            found[pair.source.name] = keys[order]
    return found
