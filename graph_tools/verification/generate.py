# SPDX-License-Identifier: Apache-2.0
"""Generate requests for a signature: known and absent keys, empty bags, unusual strings and numbers, odd batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.model import Endpoint, Model, Signature
from graph_tools.tables.absent_keys import base_name
from graph_tools.tensors import Array
from graph_tools.verification.companions import find_companions
from graph_tools.verification.domain import Domain
from graph_tools.verification.examples import example_strings
from graph_tools.verification.find_domain import find_domain
from graph_tools.verification.request import Request
from graph_tools.verification.structure import SparseInput, find_sparse_inputs
from graph_tools.verification.values import NOT_FINITE, FloatPools, Pools, pools_of

LARGE_BATCH = 1024


@dataclass(frozen=True)
class Scenario:
    """A kind of request.

    Attributes
    ----------
    name : str
        Name in the report.
    kind : str
        Kind of the values; see `values`.
    batch : int
        Number of rows; 0: drawn for each request.
    length : int or None
        Size of the other free dimensions, and of the longest bag; None: drawn.
    """

    name: str
    kind: str
    batch: int = 0
    length: int | None = None


ONE_EMPTY = "one empty input"
#: Each scenario is used once, in this order; all further requests use the last one.
SCENARIOS = (
    Scenario("one row", "known", 1),
    Scenario("known keys", "known", 33),
    Scenario("absent keys", "absent", 17),
    Scenario("empty values", "empty", 5),
    Scenario("empty bags", "known", 7, 0),
    Scenario("unicode", "unicode", 13),
    Scenario("negative ids", "negative", 9),
    Scenario("huge ids", "huge", 9),
    Scenario("ids out of range", "out of range", 3),
    Scenario("no row", "known", 0, 1),
    Scenario("large batch", "mixed", LARGE_BATCH),
    Scenario("one row of all sorts", "mixed", 1),
    Scenario(ONE_EMPTY, "known", 65),
    Scenario("numbers that are not finite", "not finite", 129),
    Scenario("all sorts", "mixed"),
)
#: Used if a conversion stores rows in fewer bits.
_LOSING = Scenario("rows that lose most", "known", 64, 2)
_BATCHES = (1, 2, 3, 7, 16, 31, 64, 127, 257)
# Largest number of elements of one input of one request.
_MOST_ELEMENTS = 1 << 18


class Generator:
    """Generates requests for one signature.

    Parameters
    ----------
    models : Model, ...
        Both models: keys are sampled from the tables of each, so that keys that only one model has occur as well.
    name : str
        Name of the signature.
    seed : int
    worst : mapping of str to ndarray, optional
        By table: the keys whose rows a conversion changes most; requests contain them.
    """

    def __init__(self, *models: Model, name: str, seed: int = 0, worst: Mapping[str, Array] | None = None) -> None:
        self.name = name
        self.signature: Signature = models[0].signatures[name]
        self.seed = seed
        self.sparse: list[SparseInput] = find_sparse_inputs(models[0], self.signature)
        self.companions = find_companions(models[0], self.signature)
        self.domains = {key: self._domain(models, key) for key in self.signature.inputs}
        self.pools: dict[str, Pools] = {
            key: pools_of(source.dtype, self.domains[key]) for key, source in self.signature.inputs.items()
        }
        self.sizes = {key: _placeholder_shape(models[0], endpoint) for key, endpoint in self.signature.inputs.items()}
        self.floats = [key for key, pool in self.pools.items() if isinstance(pool, FloatPools)]
        plain = [scenario for scenario in SCENARIOS if scenario.kind != "not finite" or self._takes_numbers()]
        self.losing = {
            key: found
            for key in self.signature.inputs
            if (found := self._keys_that_lose_most(key, worst or {})) is not None
        }
        self.scenarios = (*plain[:1], _LOSING, *plain[1:]) if self.losing else tuple(plain)

    @property
    def most_rows(self) -> int:
        """Largest number of rows of a request; it is small if a row is large, such as a sound or a picture."""
        row = max((math.prod(size or 1 for size in sizes[1:]) for sizes in self.sizes.values()), default=1)
        return max(3, _MOST_ELEMENTS // max(1, row))

    def _keys_that_lose_most(self, key: str, worst: Mapping[str, Array]) -> Array | None:
        """Return the keys that lose most, from the tables in which an input is looked up."""
        tables = {base_name(table) for table in self.domains[key].tables}
        found = [keys for name, keys in worst.items() if base_name(name) in tables]
        if not found:
            return None
        keys = np.concatenate(found)
        dtype = self.signature.inputs[key].dtype
        return keys if dtype.name == "string" else keys.astype(dtype.as_numpy_dtype)

    def _takes_numbers(self) -> bool:
        examples = [domain.examples or [] for domain in self.domains.values()]
        return bool(self.floats) or any(feature.dtype.is_floating for features in examples for feature in features)

    def _domain(self, models: tuple[Model, ...], key: str) -> Domain:
        whole = Domain()
        for model in models:
            endpoint = model.signatures[self.name].inputs.get(key) if self.name in model.signatures else None
            if endpoint is None:
                continue
            found = find_domain(model, endpoint.tensor)
            whole.known.extend(found.known)
            whole.special.extend(found.special)
            whole.numeric_text |= found.numeric_text
            whole.size |= found.size
            whole.tables |= found.tables
            whole.examples = whole.examples or found.examples
            # The first model decides which row numbers are refused; the second must refuse the same.
            whole.rows = found.rows if model is models[0] else whole.rows
        return whole

    def requests(self, count: int) -> Iterator[Request]:
        """Yield `count` requests; the same seed yields the same requests."""
        for number in range(count):
            scenario = self.scenarios[min(number, len(self.scenarios) - 1)]
            rng = np.random.default_rng([self.seed, number])
            yield Request(self.name, self._inputs(scenario, rng), f"generated {number + 1}, {scenario.name}")

    def _inputs(self, scenario: Scenario, rng: np.random.Generator) -> dict[str, Array]:
        batch = scenario.batch if scenario.batch or scenario.name == "no row" else int(rng.choice(_BATCHES))
        if scenario.name == ONE_EMPTY:
            batch = max(batch, 2 * len(self.signature.inputs))
        if scenario.kind == "not finite":
            batch = max(batch, (len(NOT_FINITE) + 1) * len(self.floats))
        batch = min(batch, self.most_rows)
        length = int(rng.integers(1, 6)) if scenario.length is None else scenario.length
        inputs: dict[str, Array] = {}
        for sparse in self.sparse:
            inputs |= self._sparse(sparse, scenario, rng, batch, length)
        for key in self.signature.inputs:
            if key not in inputs:
                left_out = self._default(key, batch, rng)
                inputs[key] = self._dense(key, scenario, rng, batch, length) if left_out is None else left_out
        if scenario.name == ONE_EMPTY:
            self._empty_in_turn(inputs, rng)
        for ids, weights in self.companions:
            self._draw_weights(inputs, ids, weights, scenario, rng)
        if scenario.kind == "not finite":
            self._not_finite_in_turn(inputs, rng)
        return {key: inputs[key] for key in self.signature.inputs}

    def _in_sparse(self) -> set[str]:
        return {key for parts in self.sparse for key in (parts.indices, parts.values, parts.dense_shape)}

    def _empty_in_turn(self, inputs: dict[str, Array], rng: np.random.Generator) -> None:
        """Make one dense input empty in each row, in turns, since pooling over nothing divides by zero."""
        dense = [key for key in inputs if key not in self._in_sparse() and inputs[key].ndim]
        for place, key in enumerate(dense):
            rows = np.arange(place, len(inputs[key]), len(dense))
            if len(rows) and self.domains[key].examples is None:
                values = inputs[key].copy()
                shape = values[rows].shape
                values[rows] = self.pools[key].draw("empty", rng, math.prod(shape)).reshape(shape)
                inputs[key] = values

    def _not_finite_in_turn(self, inputs: dict[str, Array], rng: np.random.Generator) -> None:
        """Put NaN, infinities and denormals into one place of one input of each row; the last rows stay unchanged."""
        for place, key in enumerate(self.floats):
            rows = inputs[key].reshape(len(inputs[key]), -1).copy() if inputs[key].ndim else inputs[key].reshape(1, 1)
            if not rows.size:
                continue
            step = len(self.floats)
            for turn, row in enumerate(range(place, len(rows), step)):
                if turn < 2 * len(NOT_FINITE):
                    rows[row, rng.integers(0, rows.shape[1])] = NOT_FINITE[turn % len(NOT_FINITE)]
            inputs[key] = rows.reshape(inputs[key].shape)

    def _draw_weights(
        self, inputs: dict[str, Array], ids: str, weights: str, scenario: Scenario, rng: np.random.Generator
    ) -> None:
        """Give each id a weight, which models require: at the same places, with the same padding."""
        sparse = {parts.values: parts for parts in self.sparse}
        if ids in sparse and inputs[weights].ndim == 1:
            of_ids, of_weights = sparse[ids], sparse.get(weights)
            if of_weights is not None:
                inputs[of_weights.indices] = inputs[of_ids.indices]
                inputs[of_weights.dense_shape] = inputs[of_ids.dense_shape]
            inputs[weights] = self.pools[weights].draw(scenario.kind, rng, len(inputs[ids]))
        elif inputs[ids].shape == inputs[weights].shape and inputs[ids].ndim > 1:
            empty = inputs[ids] == self.pools[ids].draw("empty", rng, 1)[0]
            # A weight that equals its own padding would leave fewer weights than ids; denormals have the same effect.
            zero = np.abs(inputs[weights]) < np.finfo(np.float32).tiny
            values = np.where(zero, np.ones((), inputs[weights].dtype), inputs[weights])
            inputs[weights] = np.where(empty, np.zeros((), values.dtype), values)

    def _default(self, key: str, batch: int, rng: np.random.Generator) -> Array | None:
        """Return the default of an input half of the time, if it has one that fits the batch; else None."""
        value = self.signature.default(key)
        if value is None or rng.random() < 0.5:
            return None
        free = value.ndim > 0 and self.sizes[key][:1] == (None,)
        return None if free and value.shape[0] != batch else value

    def _dense(self, key: str, scenario: Scenario, rng: np.random.Generator, batch: int, length: int) -> Array:
        """Fill an input; its first free dimension is the batch, the others have the length that all inputs share."""
        sizes = self.sizes[key]
        shape = [(batch if axis == 0 else length) if size is None else size for axis, size in enumerate(sizes)]
        count = int(np.prod(shape, dtype=np.int64))
        features = self.domains[key].examples
        if features is not None:
            return example_strings(features, scenario.kind, rng, count).reshape(shape)
        # Numbers that are not finite are inserted afterwards, into one input of each row.
        kind = "known" if scenario.kind == "not finite" else scenario.kind
        if scenario is _LOSING and key in self.losing:
            return np.resize(self.losing[key], shape)
        values = self.pools[key].draw(kind, rng, count).reshape(shape)
        if len(shape) >= 2 and sizes[1] is None and scenario.kind in {"mixed", "known"} and count:
            values = self._padded(key, values, rng)
        return values

    def _padded(self, key: str, values: Array, rng: np.random.Generator) -> Array:
        """Pad bags of different lengths at their end, like clients that send bags as dense inputs."""
        filled = rng.integers(0, values.shape[1] + 1, values.shape[0])
        beyond = np.arange(values.shape[1])[None, :] >= filled[:, None]
        padding = self.pools[key].draw("empty", rng, 1)[0]
        values = values.copy()
        values[beyond] = padding
        return values

    def _sparse(
        self, sparse: SparseInput, scenario: Scenario, rng: np.random.Generator, batch: int, length: int
    ) -> dict[str, Array]:
        """Fill the three parts of a sparse tensor: one bag per row, some of them empty."""
        lengths = rng.integers(0, length + 1, batch) if length else np.zeros(batch, np.int64)
        if scenario.name in {"one row", "known keys"}:
            lengths = np.maximum(lengths, 1)
        rows = np.repeat(np.arange(batch), lengths)
        columns = np.concatenate([np.arange(length) for length in lengths]) if len(rows) else np.empty(0, np.int64)
        rank = self.signature.inputs[sparse.indices].shape
        rank_size = (rank[1] if rank else None) or self._rank_of(sparse)
        indices = np.zeros((len(rows), rank_size), np.int64)
        indices[:, 0] = rows
        if rank_size > 1:
            indices[:, 1] = columns
        dense_shape = np.ones(rank_size, np.int64)
        dense_shape[0] = batch
        if rank_size > 1:
            dense_shape[1] = max(1, int(lengths.max(initial=0)))
        kind = "known" if scenario.kind == "not finite" else scenario.kind
        values = self.pools[sparse.values].draw(kind, rng, len(rows))
        if scenario is _LOSING and sparse.values in self.losing:
            values = np.resize(self.losing[sparse.values], len(rows))
        return {sparse.indices: indices, sparse.values: values, sparse.dense_shape: dense_shape}

    def _rank_of(self, sparse: SparseInput) -> int:
        shape = self.signature.inputs[sparse.dense_shape].shape
        return (shape[0] if shape else None) or 2


def _placeholder_shape(model: Model, endpoint: Endpoint) -> tuple[int | None, ...]:
    """Return the sizes of an input; if its shape is not known, one free dimension."""
    from graph_tools.graph import attribute

    if endpoint.shape is not None:
        return endpoint.shape
    node: Any = model.graph[endpoint.tensor.node]
    shape = attribute(node, "shape")
    # A TF 1 placeholder of unknown shape may have been written as a scalar.
    return shape if shape else (None,)
