# SPDX-License-Identifier: Apache-2.0
"""Whatever a client sends gets a status and a message that names the thing, and the model goes on serving."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts import deeprec_abi
from helpers.hosts.contract_messages import decode, encode, make_request, messages
from helpers.hosts.deeprec_abi import Answer, DropInModel, process
from helpers.models import model_builders

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
GOOD = encode({"x": X})
MAX = 2**63 - 1


@pytest.fixture(scope="module", params=["inline", "pinned"])
def loaded(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[DropInModel]:
    with DropInModel(tiny_model, execution=request.param) as model:
        yield model


@pytest.fixture
def tiny(loaded: DropInModel) -> Iterator[DropInModel]:
    """A model that must still give the right answer when the test has done with it."""
    yield loaded
    check(loaded.process(GOOD))


def check(answer: Answer) -> None:
    assert answer.status == 200, answer
    np.testing.assert_allclose(decode(answer.data or b"")["y"], model_builders.linear_score(X), rtol=1e-5)


def fails(answer: Answer, *words: str) -> None:
    """Check that a request has failed with a text that holds some words."""
    assert answer.status == 500
    assert answer.text.startswith("[TensorFlow] Processor predict failed: ")
    for word in words:
        assert word in answer.text


def tensor(**changes: Any) -> Callable[[Any], None]:
    """Return an edit of the request's tensor: fields, or `dim` for the sizes of its shape."""

    def edit(request: Any) -> None:
        value = request.inputs[0].value
        for name, new in changes.items():
            if name == "dim":
                value.array_shape.dim[:] = new
            elif isinstance(new, list):
                getattr(value, name)[:] = new
            else:
                setattr(value, name, new)

    return edit


# Bytes


def test_truncated_requests_are_refused(tiny: DropInModel) -> None:
    request = encode({"x": X}, "serving_default", ["y"])
    whole = {0, len(request) - len(b"\x1a\x01y")}  # nothing at all; all but the output filter
    for size in range(len(request)):
        answer = tiny.process(request[:size])
        if size in whole:
            assert answer.status == 200
        else:
            fails(answer)


def test_random_bytes_are_refused(tiny: DropInModel) -> None:
    rng = random.Random(1)
    for _ in range(1500):
        answer = tiny.process(rng.randbytes(rng.randrange(1, 200)))
        fails(answer)


def test_randomly_changed_requests_are_answered_or_refused(tiny: DropInModel) -> None:
    rng = random.Random(2)
    answered = 0
    for _ in range(3000):
        request = bytearray(encode({"x": X}, "serving_default", ["y"]))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(request))
            what = rng.randrange(3)
            if what == 0:
                request[at] = rng.randrange(256)
            elif what == 1:
                del request[at : at + rng.randrange(1, 5)]
            else:
                request[at:at] = rng.randbytes(rng.randrange(1, 5))
        answer = tiny.process(bytes(request))
        if answer.status == 200:
            answered += 1
            assert decode(answer.data or b"")["y"].shape[1:] == (1,)
        else:
            fails(answer)
    assert 0 < answered < 3000


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00",
        b"\xff" * 20,
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64 - 1
        b"\x12\xff\xff\xff\xff\x07",  # a length of 2^31 - 1
        b"\x13" * 5000,  # groups in groups
        b"\x0b" * 200 + b"\x0c" * 200,
        b"\x12\x04\x0a\x7fxy",  # a key longer than its entry
        b"\x80" * 11,
        b"\x12\x00",  # an entry without key and value
        b"\x1a\x00",  # an output without name
    ],
    ids=lambda data: repr(data[:6]),
)
def test_malformed_messages_are_refused(request_bytes: bytes, tiny: DropInModel) -> None:
    fails(tiny.process(request_bytes))


# Tensors


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (tensor(dtype=2), ["'x'", "DT_DOUBLE", "expected DT_FLOAT"]),
        (tensor(dtype=0), ["'x'", "DT_INVALID", "expected DT_FLOAT"]),
        (tensor(dtype=20), ["'x'", "DT_RESOURCE", "expected DT_FLOAT"]),
        (tensor(dtype=99), ["'x'", "99", "expected DT_FLOAT"]),
        (tensor(dtype=-1), ["'x'", "-1", "expected DT_FLOAT"]),
        (tensor(dim=[3, 2]), ["'x'", "shape [3,2], expected [?,3]"]),
        (tensor(dim=[6]), ["'x'", "shape [6], expected [?,3]"]),
        (tensor(dim=[]), ["'x'", "shape [], expected [?,3]"]),
        (tensor(dim=[1, 2, 3]), ["'x'", "shape [1,2,3], expected [?,3]"]),
        (tensor(dim=[-1, 3]), ["'x'", "[-1,3]", "negative"]),
        (tensor(dim=[-MAX - 1, 3]), ["'x'", "negative"]),
        (tensor(dim=[2, -3]), ["'x'", "negative"]),
        (tensor(dim=[MAX, 3]), ["'x'", "shape"]),
        (tensor(dim=[1 << 62, 3]), ["'x'", "shape"]),
        (tensor(dim=[1 << 40, 3]), ["'x'", "1099511627776 rows, expected at most 1048576 (max_rows)"]),
        (tensor(dim=[1 << 20, 3]), ["'x'", "6 values in float_val, expected 3145728"]),
        (tensor(dim=[1] * 255), ["'x'", "dimensions"]),
        (tensor(dim=[1] * 100_000), ["'x'", "dimensions"]),
        (tensor(dim=[3, 3]), ["'x'", "6 values in float_val, expected 9"]),
        (tensor(dim=[1, 3]), ["'x'", "6 values in float_val, expected 3"]),
        (tensor(float_val=[]), ["'x'", "0 values in float_val, expected 6"]),
        (tensor(float_val=[], double_val=[1.0] * 6), ["'x'", "0 values in float_val, expected 6"]),
    ],
    ids=lambda value: None if callable(value) else ", ".join(value)[:40],
)
def test_wrong_tensors_are_refused(edit: Callable[[Any], None], words: list[str], tiny: DropInModel) -> None:
    request = make_request({"x": X})
    edit(request)
    fails(tiny.process(request.SerializeToString()), *words)


@pytest.mark.parametrize(
    "dim",
    [[1 << 62], [1 << 31, 1 << 31, 0], [0, MAX, MAX], [1 << 20] * 4, [MAX, MAX, 0], [0] * 254, [-1]],
    ids=lambda dim: str(dim)[:40],
)
def test_enormous_shapes_are_refused_if_any_shape_is_allowed(dim: list[int], echo: DropInModel) -> None:
    request = make_request({"x": np.zeros(0, np.float32)})
    tensor(dim=dim)(request)
    answer = echo.process(request.SerializeToString())
    if 0 in dim and answer.status == 200:
        (entry,) = messages()["PredictResponse"].FromString(answer.data).outputs
        assert list(entry.value.array_shape.dim) == dim
    else:
        fails(answer, "'x'")
    assert decode(echo.process(encode({"x": X})).data or b"")["y"].tolist() == X.tolist()


@pytest.fixture(scope="module")
def echo(echo_model: Path) -> Iterator[DropInModel]:
    with DropInModel(echo_model, signature_name="DT_FLOAT", executor="single_threaded") as model:
        yield model


def test_empty_batch_is_answered(tiny: DropInModel) -> None:
    answer = tiny.process(encode({"x": np.zeros((0, 3), np.float32)}))
    assert answer.status == 200
    assert decode(answer.data or b"")["y"].shape == (0, 1)


def test_nan_and_infinity_are_answered(tiny: DropInModel) -> None:
    answer = tiny.process(encode({"x": np.array([[np.nan, 1, 2], [np.inf, -np.inf, 0]], np.float32)}))
    assert np.isnan(decode(answer.data or b"")["y"]).all()


def test_a_request_that_the_graph_refuses_fails_alone(string_model: Path) -> None:
    with DropInModel(string_model) as model:
        fails(model.process(encode({"item": [b"a", b"b", b"c"], "price": np.zeros(2, np.float32)})), "[3]", "[2]")
        good = encode({"item": [b"pear"], "price": np.zeros(1, np.float32)})
        assert decode(model.process(good).data or b"")["score"].tolist() == [10.0]


# Names


@pytest.mark.parametrize(
    ("inputs", "keys", "words"),
    [
        ({}, {"outputs": ["y"]}, ["input 'x': missing"]),
        ({"x": X, "z": X}, {}, ["input 'z': not in signature 'serving_default' (has x)"]),
        ({"": X}, {}, ["input '': not in signature"]),
        ({"y": X}, {}, ["input 'y': not in signature"]),
        ({"x:0": X}, {}, ["input 'x:0': not in signature"]),
        ({"x": X, "serving_default_x:0": X}, {}, ["input 'x'", "serving_default_x:0"]),
        ({"x": X}, {"outputs": ["z"]}, ["output 'z': not in signature 'serving_default' (has y)"]),
        ({"x": X}, {"outputs": ["y", "x"]}, ["output 'x': not in signature"]),
        ({"x": X}, {"outputs": [""]}, ["output '': not in signature"]),
        ({"x": X}, {"signature": "z"}, ["signature 'z': not in the model (has serving_default)"]),
        ({"x": X}, {"signature": "z" * 100_000}, ["signature 'zzz"]),
        ({"a\nb\x00z": X}, {}, ["input 'a\\nb\\x00z'"]),
        ({"n" * 100_000: X}, {}, ["input 'nnn"]),
        ({"x": X}, {"outputs": ["\u00fc\t" * 10_000]}, ["output '"]),
    ],
    ids=lambda value: ", ".join(value)[:40] if isinstance(value, list) else None,
)
def test_unknown_names_are_refused(
    inputs: dict[str, Any], keys: dict[str, Any], words: list[str], tiny: DropInModel
) -> None:
    answer = tiny.process(encode(inputs, **keys))
    fails(answer, *words)
    assert len(answer.text) < 1200
    assert answer.text.isprintable()


def test_many_entries_and_filters_are_answered(tiny: DropInModel) -> None:
    fails(tiny.process(encode({f"z{i}": X for i in range(3000)})), "'z0'")
    request = make_request({"x": X}, outputs=["y"] * 20_000)
    check(tiny.process(request.SerializeToString()))
    request.inputs.extend(list(request.inputs) * 1000)  # the last of equal keys counts
    check(tiny.process(request.SerializeToString()))


def test_names_that_are_not_utf8_are_escaped(tiny: DropInModel) -> None:
    for request in (
        b"\x0a\x02\xff\xfe" + GOOD,
        GOOD + b"\x1a\x02\xc3\x28",
        GOOD.replace(b"\x0a\x01x", b"\x0a\x01\xff"),
    ):
        answer = tiny.process(request)
        fails(answer)
        assert "\\x" in answer.text


# Pointers


def test_sizes_and_pointers_of_process(tiny: DropInModel) -> None:
    fails(process(tiny.handle, GOOD, -1), "input_size: -1")
    fails(process(tiny.handle, GOOD, -(2**31)), "input_size: -2147483648")
    fails(process(tiny.handle, None, 10), "NULL")
    fails(process(None, GOOD), "NULL")
    fails(process(None, None), "NULL")
    lib, data, size = deeprec_abi.library(), c_void_p(0xDEAD), c_int(-7)
    assert lib.process(tiny.handle, GOOD, len(GOOD), None, byref(size)) == 500
    assert lib.process(tiny.handle, GOOD, len(GOOD), byref(data), None) == 500
    assert lib.process(None, None, 0, None, None) == 500


def test_null_pointers_of_batch_process(tiny: DropInModel) -> None:
    function = deeprec_abi.library().batch_process
    buffer = ctypes.create_string_buffer(GOOD, len(GOOD))
    arguments = [
        tiny.handle,
        (c_void_p * 1)(ctypes.addressof(buffer)),
        (c_int * 1)(len(GOOD)),
        (c_void_p * 1)(),
        (c_int * 1)(),
    ]
    for missing in range(1, 5):
        assert function(*[None if i == missing else argument for i, argument in enumerate(arguments)]) == 500
    assert function(*[None] * 5) == 500
    status, (answer,) = deeprec_abi.batch_process(None, [GOOD])
    assert status == 500
    fails(answer, "NULL")
    status, (answer,) = tiny.batch([b""])
    assert status == 200


def test_null_pointers_of_get_serving_model_info(tiny: DropInModel) -> None:
    lib, data, size = deeprec_abi.library(), c_void_p(), c_int()
    answer = deeprec_abi.get_serving_model_info(None)
    assert answer.status == 500
    assert answer.text.startswith("[TensorFlow] Processor get_serving_model_info failed: ")
    assert lib.get_serving_model_info(tiny.handle, None, byref(size)) == 500
    assert lib.get_serving_model_info(tiny.handle, byref(data), None) == 500
    assert lib.get_serving_model_info(None, None, None) == 500


def test_null_pointers_of_initialize() -> None:
    with deeprec_abi.captured_log() as log:
        assert deeprec_abi.library().initialize(None, None, None) is None
    assert "model_config: NULL" in log[0].text
