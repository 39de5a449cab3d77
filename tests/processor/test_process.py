# SPDX-License-Identifier: Apache-2.0
"""Send requests and receive responses as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import processor
from helpers.hosts.contract_messages import decode
from helpers.models import model_builders
from load_tests.request_files import encode_request
from processor import Model

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_process_returns_an_eas_response(tiny: Model) -> None:
    answer = decode(tiny.process(encode_request({"x": X}, "eas")))
    np.testing.assert_allclose(answer["y"], model_builders.linear_score(X), rtol=1e-5)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_process_accepts_bytes_like_objects(tiny: Model, kind: Callable[[bytes], Any]) -> None:
    request = encode_request({"x": X}, "tfserving")
    assert tiny.process(kind(request), "tfserving") == tiny.process(request, protocol="tfserving") != b""


def test_process_of_an_empty_request_returns_the_signature(tiny: Model) -> None:
    assert json.loads(tiny.process(b""))["signature_name"] == "serving_default"


def test_signature_argument_overrides_that_of_the_request(multi: Model) -> None:
    request = encode_request({"a": np.array([5]), "b": np.array([1])}, "eas")
    assert decode(multi.process(request, signature="total"))["sum"].tolist() == [6]


@pytest.mark.parametrize("data", ["text", 5, None, [1], memoryview(b"abcd")[::2]])
def test_process_refuses_objects_without_bytes(tiny: Model, data: Any) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="data"):
        tiny.process(data)


def test_process_refuses_an_unknown_protocol(tiny: Model) -> None:
    with pytest.raises(processor.UnimplementedError, match="smoke"):
        tiny.process(b"", protocol="smoke")


def test_process_many_keeps_the_order(tiny: Model) -> None:
    requests = [encode_request({"x": X * i}, "eas") for i in range(20)]
    for i, answer in enumerate(tiny.process_many(iter(requests))):
        np.testing.assert_allclose(decode(answer)["y"], model_builders.linear_score(X * i), rtol=1e-5)
    assert tiny.process_many([]) == []


def test_process_many_puts_errors_in_their_place(tiny: Model) -> None:
    good, bad = encode_request({"x": X}, "eas"), encode_request({"z": X}, "eas")
    answers = tiny.process_many([good, bad, good], return_exceptions=True)
    assert isinstance(answers[0], bytes)
    assert isinstance(answers[1], processor.InvalidArgumentError)
    assert isinstance(answers[2], bytes)
    with pytest.raises(processor.InvalidArgumentError, match="z"):
        tiny.process_many([good, bad, good])
