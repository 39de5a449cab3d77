# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one exception a status, each with a builtin as second parent.

Statuses are the canonical ones of gRPC and of the library. Messages read `<object>: <what was found>, expected <what>`.
No transport's numbers are here; `serving_proxy.api.errors` has those of HTTP.
"""

from __future__ import annotations


class ProxyError(Exception):
    """Parent of every error of this package."""

    status = "INTERNAL"


class InvalidError(ProxyError, ValueError):
    """An argument is wrong, whatever the state."""

    status = "INVALID_ARGUMENT"


class NotFoundError(ProxyError, LookupError):
    """There is no such model, version, job or file."""

    status = "NOT_FOUND"


class ExistsError(ProxyError, ValueError):
    """A version's number is taken by another model."""

    status = "ALREADY_EXISTS"


class PreconditionError(ProxyError, RuntimeError):
    """The state does not permit it; another verb has to come first."""

    status = "FAILED_PRECONDITION"


class DeniedError(ProxyError, PermissionError):
    """It lies outside what the operator permitted."""

    status = "PERMISSION_DENIED"


class NotLoadedError(ProxyError, RuntimeError):
    """A model was to be loaded and could not be. TensorFlow Serving's status for it."""

    status = "UNKNOWN"


class UnauthenticatedError(ProxyError, PermissionError):
    """No token came, or a wrong one."""

    status = "UNAUTHENTICATED"


class ExhaustedError(ProxyError, OSError):
    """Room has run out: buckets, the disk, memory."""

    status = "RESOURCE_EXHAUSTED"


class UnavailableError(ProxyError, ConnectionError):
    """The proxy does not answer, or is going down."""

    status = "UNAVAILABLE"


class CancelledError(ProxyError, RuntimeError):
    """It was cancelled."""

    status = "CANCELLED"


class LateError(ProxyError, TimeoutError):
    """It took longer than it may."""

    status = "DEADLINE_EXCEEDED"


BY_STATUS: dict[str, type[ProxyError]] = {
    one.status: one
    for one in (
        ProxyError,
        InvalidError,
        NotFoundError,
        ExistsError,
        PreconditionError,
        NotLoadedError,
        DeniedError,
        UnauthenticatedError,
        ExhaustedError,
        UnavailableError,
        CancelledError,
        LateError,
    )
}


def from_status(status: str, message: str) -> ProxyError:
    """Make the exception of a status; of one that is not known, the parent of all."""
    return BY_STATUS.get(status, ProxyError)(message)
