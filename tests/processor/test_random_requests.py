# SPDX-License-Identifier: Apache-2.0
"""Check that random requests are answered or refused with our errors, and that the model continues to serve."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import processor
from helpers.models import model_builders
from load_tests.request_files import encode_request
from processor import Model

X = np.ones((1, 3), np.float32)
RELAXED = settings(suppress_health_check=[HealthCheck.too_slow])

dtypes = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(max_len=4),
    hnp.unicode_string_dtypes(max_len=4),
    st.just(np.dtype(np.float32)),
)
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(), st.binary())
values = st.one_of(arrays, st.recursive(plain, lambda inner: st.lists(inner, max_size=4), max_leaves=8))
names = st.one_of(st.sampled_from(["x", "item", "price", "a", "b", "text", "serving_default_x:0"]), st.text(max_size=6))
signatures = st.one_of(
    st.none(), st.sampled_from(["serving_default", "total", "length", "DT_STRING"]), st.text(max_size=4)
)


def goes_on(model: Model) -> None:
    np.testing.assert_allclose(model.run({"x": X})["y"], model_builders.linear_score(X), rtol=1e-5)


@RELAXED
@given(
    inputs=st.dictionaries(names, values, max_size=3),
    signature=signatures,
    outputs=st.none() | st.lists(names, max_size=3),
)
def test_run_of_random_inputs_answers_or_refuses(
    tiny: Model, strings: Model, multi: Model, inputs: Any, signature: Any, outputs: Any
) -> None:
    for model in (tiny, strings, multi):
        try:
            model.run(inputs, signature, outputs)
        except processor.ProcessorError as error:
            assert str(error)  # noqa: PT017
    goes_on(tiny)


@RELAXED
@given(name=st.sampled_from(sorted(model_builders.DTYPES)), value=arrays)
def test_echo_of_random_inputs_returns_them_or_refuses(echo: Model, name: str, value: np.ndarray) -> None:
    try:
        back = echo.run({"x": value}, signature=name)["y"]
    except processor.InvalidArgumentError as error:
        assert "'x'" in str(error)  # noqa: PT017
        return
    assert back.shape == value.shape
    if value.dtype.kind == "S":
        assert back.tolist() == value.tolist()
    elif value.dtype.kind == "U":
        assert back.tolist() == np.char.encode(value, "utf-8").tolist()
    else:
        assert back.dtype == value.dtype
        np.testing.assert_array_equal(back, value)


@RELAXED
@given(data=st.binary(max_size=200), protocol=st.sampled_from(["eas", "tfserving"]))
def test_random_bytes_are_refused(tiny: Model, data: bytes, protocol: str) -> None:
    try:
        tiny.process(data, protocol)
    except processor.ProcessorError as error:
        assert str(error)  # noqa: PT017
    goes_on(tiny)


@RELAXED
@given(
    protocol=st.sampled_from(["eas", "tfserving"]),
    cut=st.integers(0, 100),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4),
)
def test_damaged_requests_are_answered_or_refused(
    strings: Model, tiny: Model, protocol: Any, cut: int, flips: list[tuple[int, int]]
) -> None:
    whole = encode_request({"item": np.array([b"pear", b"x"], object), "price": np.ones(2, np.float32)}, protocol)
    data = bytearray(whole[: max(len(whole) - cut, 0)])
    for position, bits in flips:
        if data:
            data[position % len(data)] ^= bits
    try:
        strings.process(data, protocol)
    except processor.ProcessorError as error:
        assert str(error)  # noqa: PT017
    goes_on(tiny)
