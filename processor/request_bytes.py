# SPDX-License-Identifier: Apache-2.0
"""Limit the memory that requests in flight may use: one budget for all models and hosts of the process.

The library reserves memory for the data that it decodes, computes and encodes. A program that receives requests must
also reserve memory for their bodies, before it reads or decompresses them:

    with processor.RequestBytes() as claim:
        claim.grow_to(65536)
"""

from __future__ import annotations

from types import TracebackType

from processor._ffi import ffi
from processor._lib import get_lib
from processor.errors import check_error


def set_max_request_bytes(limit: int) -> None:
    """Set the total memory that requests in flight may use.

    Parameters
    ----------
    limit : int [bytes]
        1 MiB or more. 0: the default, a tenth of the memory of the machine or the cgroup, but at least 256 MiB.

    Raises
    ------
    InvalidArgumentError
        If the number is outside this range.
    """
    error = ffi.new("processor_error *")
    check_error(get_lib().processor_request_bytes_set_limit(limit, error), error)


def max_request_bytes() -> int:
    """Return the total memory that requests in flight may use, in bytes."""
    limit: int = get_lib().processor_request_bytes_limit()
    return limit


class RequestBytes:
    """Reservation for the body of one request. For one thread at a time; use it in a `with` statement."""

    def __init__(self) -> None:
        self.held = 0
        self._lib = get_lib()

    def __del__(self) -> None:
        # Safety net for callers that use no `with` statement.
        self.release()

    def grow_to(self, size: int) -> None:
        """Enlarge the reservation to `size` bytes.

        Raises
        ------
        ResourceExhaustedError
            If there is no room now. For a body of more than 64 KiB, the budget counts as full when half of it is used.
        InvalidArgumentError
            If there can never be enough room.
        """
        more = size - self.held
        if more <= 0:
            return
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_request_bytes_claim(self.held, more, error), error)
        self.held = size

    def release(self) -> None:
        """Release the reservation, once the memory is free."""
        if self.held:
            self._lib.processor_request_bytes_release(self.held)
            self.held = 0

    def __enter__(self) -> RequestBytes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
