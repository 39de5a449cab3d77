# SPDX-License-Identifier: Apache-2.0
"""The errors of this package: one exception for each status, each with a builtin as second parent.

Statuses are the canonical ones of gRPC and of the library. Messages read `<object>: <what was found>, expected <what>`.
This module contains no numbers of a transport; `serving_proxy.api.errors` has those of HTTP.
"""

from __future__ import annotations


class ProxyError(Exception):
    """Parent of every error of this package."""

    status = "INTERNAL"


class InvalidError(ProxyError, ValueError):
    """An argument is invalid in any state."""

    status = "INVALID_ARGUMENT"


class NotFoundError(ProxyError, LookupError):
    """There is no such model, version, job or file."""

    status = "NOT_FOUND"


class ExistsError(ProxyError, ValueError):
    """A version's number is taken by another model."""

    status = "ALREADY_EXISTS"


class PreconditionError(ProxyError, RuntimeError):
    """The present state does not permit it; another verb has to come first."""

    status = "FAILED_PRECONDITION"


class DeniedError(ProxyError, PermissionError):
    """It is outside of what the operator has permitted."""

    status = "PERMISSION_DENIED"


class NotLoadedError(ProxyError, RuntimeError):
    """A model was to be loaded and could not be; the status is TensorFlow Serving's for this."""

    status = "UNKNOWN"


class UnauthenticatedError(ProxyError, PermissionError):
    """The token is missing or wrong."""

    status = "UNAUTHENTICATED"


class ExhaustedError(ProxyError, OSError):
    """A resource is exhausted: buckets, the disk, memory."""

    status = "RESOURCE_EXHAUSTED"


class UnavailableError(ProxyError, ConnectionError):
    """The proxy does not respond, or is shutting down."""

    status = "UNAVAILABLE"


class CancelledError(ProxyError, RuntimeError):
    """It was cancelled."""

    status = "CANCELLED"


class LateError(ProxyError, TimeoutError):
    """It took longer than permitted."""

    status = "DEADLINE_EXCEEDED"


BY_STATUS: dict[str, type[ProxyError]] = {
    kind.status: kind
    for kind in (
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
    """Return the exception for a status; if the status is not known, that of the common parent."""
    return BY_STATUS.get(status, ProxyError)(message)
