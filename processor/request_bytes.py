# SPDX-License-Identifier: Apache-2.0
"""The memory that requests in flight may hold: one budget for all models and hosts of the process.

The library claims what it decodes, computes and answers. A program that receives requests claims their bytes as well,
before it reads or inflates them:

    with processor.RequestBytes() as claim:
        claim.grow_to(65536)
"""

from __future__ import annotations

from types import TracebackType

from processor._ffi import ffi
from processor._lib import get_lib
from processor.errors import check_error


def set_max_request_bytes(limit: int) -> None:
    """Set what requests in flight may hold together.

    Parameters
    ----------
    limit : int [bytes]
        1 MiB or more. 0: the default, a tenth of the memory that the machine or the cgroup has, but at least 256 MiB.

    Raises
    ------
    InvalidArgumentError
        For a number outside.
    """
    error = ffi.new("processor_error *")
    check_error(get_lib().processor_request_bytes_set_limit(limit, error), error)


def max_request_bytes() -> int:
    """Return what requests in flight may hold together, in bytes."""
    limit: int = get_lib().processor_request_bytes_limit()
    return limit


class RequestBytes:
    """What is claimed for the body of one request. For one thread at a time; use it in a `with` statement."""

    def __init__(self) -> None:
        self.held = 0
        self._lib = get_lib()

    def __del__(self) -> None:
        # The safety net of who uses no `with` statement.
        self.release()

    def grow_to(self, size: int) -> None:
        """Claim what is missing to so many bytes.

        Raises
        ------
        ResourceExhaustedError
            If there is no room now. A body of more than 64 KiB finds the budget full when half of it is used.
        InvalidArgumentError
            If there never will be.
        """
        more = size - self.held
        if more <= 0:
            return
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_request_bytes_claim(self.held, more, error), error)
        self.held = size

    def release(self) -> None:
        """Give everything back, once the memory is free."""
        if self.held:
            self._lib.processor_request_bytes_release(self.held)
            self.held = 0

    def __enter__(self) -> RequestBytes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
