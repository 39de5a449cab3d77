# SPDX-License-Identifier: Apache-2.0
"""Define the common base of models and hosts: each owns a handle of the library and frees it once."""

from __future__ import annotations

import atexit
import sys
import warnings
import weakref
from types import TracebackType
from typing import Any, ClassVar, Self

from processor._ffi import ffi
from processor._lib import get_lib
from processor._request import deadline_us
from processor._result import Result
from processor.errors import FailedPreconditionError, check_error

_open_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


class Owner:
    """Own a handle of the library from `_own` to `close`.

    A subclass defines `_kind`, its name in messages and in those of its C functions, such as `processor_model_free`.
    """

    _kind: ClassVar[str]

    def __init__(self, name: str) -> None:
        self._handle: Any = None
        self._lib = get_lib()
        self._name = name

    def close(self) -> None:
        """Refuse new requests, cancel the waiting ones, wait for the running ones, then unload and free the handle.

        A second call does nothing.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            self._c_function("free")(handle)

    def drain(self, deadline: float | None = None) -> None:
        """Refuse new requests and wait until the admitted ones have been completed.

        Parameters
        ----------
        deadline : float, optional [s]
            On the clock of `time.monotonic()`; by default there is no limit.

        Raises
        ------
        DeadlineExceededError
            If requests are left by then; new requests are still refused.
        """
        error = ffi.new("processor_error *")
        check_error(self._c_function("drain")(self._open_handle(), deadline_us(deadline), error), error)

    @property
    def closed(self) -> bool:
        """Return whether this object has been closed."""
        return self._handle is None

    def __enter__(self) -> Self:
        self._open_handle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self, _is_finalizing: Any = sys.is_finalizing) -> None:
        if getattr(self, "_handle", None) is not None and not _is_finalizing():
            warnings.warn(f"{self._kind} {self._name}: not closed", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        return f"<processor.{type(self).__name__} {self._name!r}{' (closed)' if self.closed else ''}>"

    def _own(self, handle: Any) -> None:
        self._handle = handle
        _open_owners.add(self)

    def _open_handle(self) -> Any:
        handle = self._handle
        if handle is None:
            raise FailedPreconditionError(f"{self._kind} {self._name}: closed, expected an open one")
        return handle

    def _c_function(self, verb: str) -> Any:
        return getattr(self._lib, f"processor_{self._kind}_{verb}")

    def _ask(self, question: Any) -> Result:
        """Call a C function that needs only the handle and returns a result."""
        result, error = ffi.new("processor_result **"), ffi.new("processor_error *")
        check_error(question(self._open_handle(), result, error), error)
        return Result(result[0])


@atexit.register
def _close_open_owners() -> None:
    # Close while the interpreter is intact and before the destructors of TensorFlow's globals run.
    for owner in list(_open_owners):
        owner.close()
