# SPDX-License-Identifier: Apache-2.0
"""What models and hosts have in common: each owns something of the library's, and frees it once."""

from __future__ import annotations

import atexit
import sys
import warnings
import weakref
from types import TracebackType
from typing import Any, ClassVar, Self

from processor._ffi import ffi
from processor._lib import get_lib
from processor._result import Result
from processor.errors import FailedPreconditionError, check_error

_open_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


class Owner:
    """Owns a handle of the library from `_own` to `close`.

    A class of it says what it is in messages, and the C function that frees it.
    """

    _kind: ClassVar[str]
    _free: ClassVar[str]

    def __init__(self, name: str) -> None:
        self._handle: Any = None
        self._lib = get_lib()
        self._name = name

    def close(self) -> None:
        """Free it: refuse new requests, cancel the waiting ones, wait for the running ones, unload.

        A second call does nothing.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            getattr(self._lib, self._free)(handle)

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
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

    def _ask(self, question: Any) -> Result:
        """Ask a C function that answers with a result about the handle alone."""
        result, error = ffi.new("processor_result **"), ffi.new("processor_error *")
        check_error(question(self._open_handle(), result, error), error)
        return Result(result[0])


@atexit.register
def _close_what_is_open() -> None:
    # While the interpreter is whole, and before the destructors of TensorFlow's own globals run.
    for owner in list(_open_owners):
        owner.close()
