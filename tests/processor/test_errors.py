# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

import processor
from processor._ffi import ffi
from processor.errors import check_error

# Canonical codes, as in gRPC: typed here once more, because the classes take theirs from the header.
EXPECTED = {
    1: (processor.CancelledError, RuntimeError),
    2: (processor.UnknownError, RuntimeError),
    3: (processor.InvalidArgumentError, ValueError),
    4: (processor.DeadlineExceededError, TimeoutError),
    5: (processor.NotFoundError, LookupError),
    6: (processor.AlreadyExistsError, FileExistsError),
    7: (processor.PermissionDeniedError, PermissionError),
    8: (processor.ResourceExhaustedError, RuntimeError),
    9: (processor.FailedPreconditionError, RuntimeError),
    10: (processor.AbortedError, RuntimeError),
    11: (processor.OutOfRangeError, IndexError),
    12: (processor.UnimplementedError, NotImplementedError),
    13: (processor.InternalError, RuntimeError),
    14: (processor.UnavailableError, ConnectionError),
    15: (processor.DataLossError, OSError),
    16: (processor.UnauthenticatedError, PermissionError),
}


def fill(code: int, message: bytes) -> object:
    error = ffi.new("processor_error *")
    error.code = code
    error.message = message
    return error


@pytest.mark.parametrize("code", EXPECTED)
def test_error_has_two_parents_and_its_code(code: int) -> None:
    kind, builtin = EXPECTED[code]
    with pytest.raises(kind) as caught:
        check_error(code, fill(code, "größe 'x': 1, expected 2".encode()))
    assert type(caught.value) is kind
    assert isinstance(caught.value, processor.ProcessorError)
    assert isinstance(caught.value, builtin)
    assert caught.value.code == code
    assert str(caught.value) == "größe 'x': 1, expected 2"


def test_error_survives_pickling() -> None:
    for kind, _ in EXPECTED.values():
        copy = pickle.loads(pickle.dumps(kind("what")))
        assert type(copy) is kind
        assert str(copy) == "what"


def test_check_error_passes_ok() -> None:
    check_error(0, fill(0, b""))


@pytest.mark.parametrize("code", [17, -1, 2**31 - 1])
def test_unknown_code_is_an_unknown_error(code: int) -> None:
    with pytest.raises(processor.UnknownError, match="strange"):
        check_error(code, fill(code, b"strange"))


def test_message_truncated_within_a_character_is_readable() -> None:
    with pytest.raises(processor.InternalError, match="abc"):
        check_error(13, fill(13, b"abc\xc3"))
