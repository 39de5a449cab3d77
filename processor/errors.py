# SPDX-License-Identifier: Apache-2.0
"""Convert the status of a C call into an exception; no other module does this.

Every exception has two parents, `ProcessorError` and the builtin exception that fits best. Its attribute `code` is the
number of its status, the canonical code of gRPC and TensorFlow.
"""

from __future__ import annotations

from typing import Any, ClassVar

from processor._answer import Answer
from processor._ffi import ffi


class ProcessorError(Exception):
    """Represent any failure of the library. `code` is the canonical status number.

    `answer` is what a host reports about a failed request, such as when to retry; None for all other failures.
    """

    code: ClassVar[int] = ffi.integer_const("PROCESSOR_UNKNOWN")
    answer: Answer | None = None


class CancelledError(ProcessorError, RuntimeError):
    """The request was cancelled, or its model was closed while the request waited."""

    code = ffi.integer_const("PROCESSOR_CANCELLED")


class UnknownError(ProcessorError, RuntimeError):
    """The failure has no more specific status."""

    code = ffi.integer_const("PROCESSOR_UNKNOWN")


class InvalidArgumentError(ProcessorError, ValueError):
    """The request or the configuration is wrong, whatever the state of the model."""

    code = ffi.integer_const("PROCESSOR_INVALID_ARGUMENT")


class DeadlineExceededError(ProcessorError, TimeoutError):
    """The deadline had passed before the request was run."""

    code = ffi.integer_const("PROCESSOR_DEADLINE_EXCEEDED")


class NotFoundError(ProcessorError, LookupError):
    """A file, signature, output or model version does not exist."""

    code = ffi.integer_const("PROCESSOR_NOT_FOUND")


class AlreadyExistsError(ProcessorError, FileExistsError):
    """The object that should be created already exists."""

    code = ffi.integer_const("PROCESSOR_ALREADY_EXISTS")


class PermissionDeniedError(ProcessorError, PermissionError):
    """There is no permission to read a file."""

    code = ffi.integer_const("PROCESSOR_PERMISSION_DENIED")


class ResourceExhaustedError(ProcessorError, RuntimeError):
    """The queue of the model is full, or memory is exhausted. Retry later or on another server."""

    code = ffi.integer_const("PROCESSOR_RESOURCE_EXHAUSTED")


class FailedPreconditionError(ProcessorError, RuntimeError):
    """The object is in the wrong state for the operation: closed, or built against other versions."""

    code = ffi.integer_const("PROCESSOR_FAILED_PRECONDITION")


class AbortedError(ProcessorError, RuntimeError):
    """The operation was aborted, typically because another one came first."""

    code = ffi.integer_const("PROCESSOR_ABORTED")


class OutOfRangeError(ProcessorError, IndexError):
    """An index or a position is beyond the end."""

    code = ffi.integer_const("PROCESSOR_OUT_OF_RANGE")


class UnimplementedError(ProcessorError, NotImplementedError):
    """The library does not support the operation: an unknown protocol, a custom op."""

    code = ffi.integer_const("PROCESSOR_UNIMPLEMENTED")


class InternalError(ProcessorError, RuntimeError):
    """The library has an internal fault."""

    code = ffi.integer_const("PROCESSOR_INTERNAL")


class UnavailableError(ProcessorError, ConnectionError):
    """The model is draining. Retry on another server."""

    code = ffi.integer_const("PROCESSOR_UNAVAILABLE")


class DataLossError(ProcessorError, OSError):
    """A file is damaged."""

    code = ffi.integer_const("PROCESSOR_DATA_LOSS")


class UnauthenticatedError(ProcessorError, PermissionError):
    """The caller is not authenticated."""

    code = ffi.integer_const("PROCESSOR_UNAUTHENTICATED")


_BY_CODE: dict[int, type[ProcessorError]] = {error.code: error for error in ProcessorError.__subclasses__()}


def make_error(error: Any) -> ProcessorError:
    """Return the exception for the error that the library wrote into a `processor_error`."""
    message = ffi.string(error.message).decode("utf-8", "replace")
    return _BY_CODE.get(error.code, UnknownError)(message)


def check_error(status: int, error: Any) -> None:
    """Raise the error that a failed call wrote into its `processor_error`.

    Parameters
    ----------
    status : int
        Return value of the call.
    error : cdata processor_error *
        Last argument of the call.
    """
    if status:
        raise make_error(error)
