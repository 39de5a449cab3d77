# SPDX-License-Identifier: Apache-2.0
"""Turn the status of a C call into an exception: the only place where that happens.

Every exception has two parents, `ProcessorError` and the builtin that a user would expect, and the number of its status
in `code`: the canonical one of gRPC and TensorFlow.
"""

from __future__ import annotations

from typing import Any, ClassVar

from processor._answer import Answer
from processor._ffi import ffi


class ProcessorError(Exception):
    """Any failure of the library. `code` is the canonical status number.

    `answer` is what a host says of a request that failed, such as when to try again; None of anything else.
    """

    code: ClassVar[int] = ffi.integer_const("PROCESSOR_UNKNOWN")
    answer: Answer | None = None


class CancelledError(ProcessorError, RuntimeError):
    """The request was cancelled, or its model closed while it waited."""

    code = ffi.integer_const("PROCESSOR_CANCELLED")


class UnknownError(ProcessorError, RuntimeError):
    """A failure that names no other status."""

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
    """What was to be made is there already."""

    code = ffi.integer_const("PROCESSOR_ALREADY_EXISTS")


class PermissionDeniedError(ProcessorError, PermissionError):
    """A file may not be read."""

    code = ffi.integer_const("PROCESSOR_PERMISSION_DENIED")


class ResourceExhaustedError(ProcessorError, RuntimeError):
    """The queue of the model is full, or memory is. Try again later, or elsewhere."""

    code = ffi.integer_const("PROCESSOR_RESOURCE_EXHAUSTED")


class FailedPreconditionError(ProcessorError, RuntimeError):
    """The object is not in a state for this: closed, or built against something else."""

    code = ffi.integer_const("PROCESSOR_FAILED_PRECONDITION")


class AbortedError(ProcessorError, RuntimeError):
    """The operation was given up, typically because another one came first."""

    code = ffi.integer_const("PROCESSOR_ABORTED")


class OutOfRangeError(ProcessorError, IndexError):
    """An index or a position lies behind the end."""

    code = ffi.integer_const("PROCESSOR_OUT_OF_RANGE")


class UnimplementedError(ProcessorError, NotImplementedError):
    """The library does not do this: an unknown protocol, a custom op, an incremental checkpoint."""

    code = ffi.integer_const("PROCESSOR_UNIMPLEMENTED")


class InternalError(ProcessorError, RuntimeError):
    """A fault of the library."""

    code = ffi.integer_const("PROCESSOR_INTERNAL")


class UnavailableError(ProcessorError, ConnectionError):
    """The model is draining. Try elsewhere."""

    code = ffi.integer_const("PROCESSOR_UNAVAILABLE")


class DataLossError(ProcessorError, OSError):
    """A file is damaged."""

    code = ffi.integer_const("PROCESSOR_DATA_LOSS")


class UnauthenticatedError(ProcessorError, PermissionError):
    """The caller did not say who it is."""

    code = ffi.integer_const("PROCESSOR_UNAUTHENTICATED")


_BY_CODE: dict[int, type[ProcessorError]] = {error.code: error for error in ProcessorError.__subclasses__()}


def make_error(error: Any) -> ProcessorError:
    """Return the exception for what the library wrote into a `processor_error`."""
    message = ffi.string(error.message).decode("utf-8", "replace")
    return _BY_CODE.get(error.code, UnknownError)(message)


def check_error(status: int, error: Any) -> None:
    """Raise what a failed call wrote into its `processor_error`.

    Parameters
    ----------
    status : int
        What the call returned.
    error : cdata processor_error *
        Its last argument.
    """
    if status:
        raise make_error(error)
