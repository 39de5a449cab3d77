# SPDX-License-Identifier: Apache-2.0
"""Run models in stock TensorFlow, before and after graph-tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from helpers.oracles.outputs import assert_same_outputs

Feeds = dict[str, Any]
WORDS = [b"", b"apple", b"banana", "żółw".encode(), b"1", b"7", b"a rather long word that is in no vocabulary"]


def answers(path: Path, feeds: Feeds, signature: str = "serving_default") -> dict[str, np.ndarray]:
    """Run a signature of a SavedModel once."""
    (found,) = all_answers(path, [feeds], signature)
    return found


def all_answers(path: Path, feeds: list[Feeds], signature: str) -> list[dict[str, np.ndarray]]:
    """Load a SavedModel once, with TF 1's loader, which reads every kind of model, and run each of the requests."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        served = v1.saved_model.load(session, ["serve"], str(path)).signature_def[signature]
        fetched = {key: info.name for key, info in served.outputs.items()}
        fed = [{served.inputs[key].name: value for key, value in each.items()} for each in feeds]
        return [session.run(fetched, each) for each in fed]


def requests_for(path: Path, seed: int = 0) -> dict[str, list[Feeds]]:
    """Make requests of 1, 3 and 16 rows for every signature of a SavedModel."""
    from graph_tools.readers import read_model

    random = np.random.default_rng(seed)
    made: dict[str, list[Feeds]] = {}
    for name, signature in read_model(path).signatures.items():
        made[name] = [
            {key: _values(source, rows, random) for key, source in signature.inputs.items()} for rows in (1, 3, 16)
        ]
    return made


def _values(endpoint: Any, rows: int, random: np.random.Generator) -> np.ndarray:
    shape = [rows if size is None else size for size in endpoint.shape or ()]
    if endpoint.dtype.name == "string":
        chosen = random.integers(0, len(WORDS), shape)
        return np.array(WORDS, object)[chosen]
    if endpoint.dtype.is_integer:
        return random.integers(0, 50, shape).astype(endpoint.dtype.as_numpy_dtype)
    return random.normal(size=shape).astype(endpoint.dtype.as_numpy_dtype)


def assert_same_answers(before: Path, after: Path, requests: dict[str, list[Feeds]], exact: bool = False) -> None:
    """Check that the outputs of two SavedModels agree: |a - b| <= 1e-5 + 1e-5 * |b|, or bit for bit."""
    for signature, feeds in requests.items():
        pairs = zip(all_answers(after, feeds, signature), all_answers(before, feeds, signature), strict=True)
        for found, expected in pairs:
            assert_same_outputs(found, expected, exact=exact)
