# SPDX-License-Identifier: Apache-2.0
"""Find the keys whose rows lose most when a table is stored in fewer bits: requests without them prove little."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.tables.evaluate import evaluate_lookup
from graph_tools.tensors import Array, byte_size
from graph_tools.verification.tables import Pair

#: Number of keys per table that requests contain.
MOST = 64
# Largest table [bytes] that is searched; larger tables have no preferred keys.
_BYTES = 256 << 20


def worst_keys(pairs: Iterable[Pair]) -> dict[str, Array]:
    """Return for each table that differs the keys [n] whose rows changed most, the worst first.

    Tables larger than a limit, and keys whose rows did not change, are left out.
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
