# SPDX-License-Identifier: Apache-2.0
"""Test the content of generated requests, and that equal seeds give equal requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.readers import read_model
from graph_tools.verification.generate import LARGE_BATCH, SCENARIOS, Generator
from graph_tools.verification.request import Request
from helpers.models import verify_models


@pytest.fixture(scope="module")
def strings(string_model: Path) -> list[Request]:
    return list(Generator(read_model(string_model), name="serving_default", seed=3).requests(40))


def _of(requests: list[Request], scenario: str) -> Request:
    return next(request for request in requests if request.origin.endswith(scenario))


def test_equal_seeds_give_equal_requests(string_model: Path, strings: list[Request]) -> None:
    model = read_model(string_model)
    again = list(Generator(model, name="serving_default", seed=3).requests(40))
    other = list(Generator(model, name="serving_default", seed=4).requests(40))
    same = [_equal(a, b) for a, b in zip(strings, again, strict=True)]
    assert all(same)
    assert not all(_equal(a, b) for a, b in zip(strings, other, strict=True))


def _equal(a: Request, b: Request) -> bool:
    return all(repr(a.inputs[key].tolist()) == repr(b.inputs[key].tolist()) for key in a.inputs)


def test_known_keys_come_from_the_vocabulary_file(strings: list[Request]) -> None:
    from helpers.models.model_builders import VOCABULARY

    known = {word.encode() for word in VOCABULARY}
    assert set(_of(strings, "known keys").inputs["item"]) == known
    assert not set(_of(strings, "absent keys").inputs["item"]) & known
    assert set(_of(strings, "large batch").inputs["item"]) > known | {b""}


def test_batches_and_strange_strings(strings: list[Request]) -> None:
    sizes = {len(string.inputs["item"]) for string in strings}
    assert {0, 1, LARGE_BATCH} < sizes
    assert any(size % 2 for size in sizes - {1})
    assert set(_of(strings, "empty values").inputs["item"]) == {b""}
    assert any(max(source, default=0) > 127 for source in _of(strings, "unicode").inputs["item"])
    prices = np.concatenate([request.inputs["price"] for request in strings if "not finite" not in request.origin])
    assert np.isfinite(prices).all()
    assert {0.0} < set(prices.tolist())
    assert prices.min() < -1e9 < 1e20 < prices.max()


def test_all_inputs_of_a_request_have_one_batch(strings: list[Request]) -> None:
    assert all(len(string.inputs["item"]) == len(string.inputs["price"]) for string in strings)
    assert len(strings) > len(SCENARIOS)


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, list[Request]]:
    model = read_model(verify_models.build_bags(tmp_path_factory.mktemp("bags") / "model"))
    return model, list(Generator(model, name="serving_default").requests(30))


def test_sparse_tensors_are_consistent(bags: tuple[Model, list[Request]]) -> None:
    for request in bags[1]:
        indices, values, shape = (request.inputs[key] for key in "abc")
        assert indices.shape == (len(values), 2)
        assert shape[0] == len(request.inputs["price"])
        assert (indices < shape).all()
        assert sorted(map(tuple, indices.tolist())) == list(map(tuple, indices.tolist()))
    sizes = [np.bincount(bag.inputs["a"][:, 0], minlength=int(bag.inputs["c"][0])) for bag in bags[1]]
    assert any((size == 0).any() and (size > 1).any() for size in sizes)
    assert not _of(bags[1], "empty bags").inputs["b"].size


def test_row_numbers_stay_within_the_table_but_for_one_request(bags: tuple[Model, list[Request]]) -> None:
    for request in bags[1]:
        inside = ((request.inputs["b"] >= 0) & (request.inputs["b"] < 20)).all()
        assert inside == (not request.origin.endswith("out of range"))
    assert max(bag.inputs["b"].max(initial=0) for bag in bags[1] if "range" not in bag.origin) == 19


@pytest.mark.parametrize(
    "name", ["DT_INT8", "DT_UINT8", "DT_UINT64", "DT_HALF", "DT_BFLOAT16", "DT_BOOL", "DT_COMPLEX64"]
)
def test_every_dtype_has_values(echo_model: Path, name: str) -> None:
    model = read_model(echo_model, signatures=(name,))
    for request in Generator(model, name=name).requests(16):
        assert request.inputs["x"].dtype == model.signatures[name].inputs["x"].dtype.as_numpy_dtype


def test_ids_that_are_negative_and_huge(multi_signature_model: Path) -> None:
    model = read_model(multi_signature_model)
    requests = list(Generator(model, name="total").requests(16))
    assert _of(requests, "negative ids").inputs["a"].max() < 0
    assert np.abs(_of(requests, "huge ids").inputs["a"].astype(np.float64)).max() >= 2.0**62
    assert set(_of(requests, "empty values").inputs["b"]) == {-1}
