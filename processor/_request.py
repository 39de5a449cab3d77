# SPDX-License-Identifier: Apache-2.0
"""Represent requests to a model as C structs, with all memory that they point to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from processor._ffi import NULL, ffi
from processor._tensors import InputLayout, InputTensors, c_text
from processor.errors import InvalidArgumentError
from processor.signature import Signature

_REQUEST_SIZE: int = ffi.sizeof("struct processor_request")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


def deadline_us(deadline: float | None) -> int:
    """Return a deadline [s on time.monotonic()] in the library's unit [us]; 0 for none.

    Raises
    ------
    InvalidArgumentError
        If it is not a valid number.
    """
    if deadline is None or deadline == math.inf:
        return 0
    try:
        # 0 means no deadline, so a deadline at or before the start of the clock becomes its first microsecond.
        return 1 if deadline <= 0 else min(max(int(deadline * 1e6), 1), _INT64_MAX)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"deadline: {deadline!r}, expected seconds on time.monotonic()") from error


def checked_priority(priority: int) -> int:
    """Return a priority after checking its range.

    Raises
    ------
    InvalidArgumentError
        If it does not fit into 32 bits.
    """
    if not isinstance(priority, int) or not -_INT32_MAX - 1 <= priority <= _INT32_MAX:
        raise InvalidArgumentError(f"priority: {priority!r}, expected an integer of 32 bits")
    return priority


class Request:
    """One request (`struct`, a `processor_request`) and its memory, which must outlive the call."""

    __slots__ = ("_kept", "struct")

    def __init__(self, deadline: float | None, priority: int, signature: Any) -> None:
        """Begin a request; `signature` is a C string or NULL."""
        self.struct = ffi.new("processor_request *")
        self.struct.struct_size = _REQUEST_SIZE
        self.struct.deadline_us = deadline_us(deadline)
        self.struct.priority = checked_priority(priority)
        self.struct.signature_name = signature
        self._kept: list[Any] = [signature]

    def set_bytes(self, protocol: str, data: Any) -> None:
        """Set the request to serialized bytes in a protocol."""
        c_protocol = c_text("protocol", protocol)
        try:
            buffer = ffi.from_buffer(data)
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidArgumentError(f"data: {type(data).__name__}, expected contiguous bytes") from error
        self.struct.protocol = c_protocol
        self.struct.data = buffer
        self.struct.size = ffi.sizeof(buffer)
        self._kept += [c_protocol, buffer]

    def set_tensors(self, tensors: InputTensors, outputs: Sequence[str] | None) -> None:
        """Set the request to tensors, with the wanted outputs; None or an empty list requests all outputs."""
        self.struct.inputs = tensors.tensors
        self.struct.num_inputs = tensors.count
        self._kept.append(tensors)
        if isinstance(outputs, str):
            raise InvalidArgumentError(f"outputs: {outputs!r}, expected a list of names, or None for all")
        if not outputs:
            return
        names = [c_text("output", name) for name in outputs]
        c_outputs = ffi.new("const char *[]", names)
        self.struct.outputs = c_outputs
        self.struct.num_outputs = len(names)
        self._kept += [names, c_outputs]


class RequestFactory:
    """Create the requests of one model and cache the parts that they share. Any thread may use it."""

    def __init__(self, signatures: dict[str, Signature]) -> None:
        """Prepare the cache for the signatures of a model."""
        self._layouts = {name: InputLayout(signature) for name, signature in signatures.items()}
        self._c_names = {name: c_text("signature", name) for name in signatures}
        # The library refuses a name that the model does not have.
        self._unknown = InputLayout(None)
        defaults = (self._layouts[name] for name, signature in signatures.items() if signature.is_default)
        self._default = next(defaults, self._unknown)

    def bytes_request(
        self, data: Any, protocol: str, signature: str | None, deadline: float | None, priority: int
    ) -> Request:
        """Return a request of bytes."""
        request = Request(deadline, priority, self._c_signature(signature))
        request.set_bytes(protocol, data)
        return request

    def tensor_request(
        self,
        inputs: Mapping[str, Any],
        signature: str | None,
        outputs: Sequence[str] | None,
        deadline: float | None,
        priority: int,
    ) -> Request:
        """Return a request of tensors."""
        if not isinstance(inputs, Mapping):
            raise InvalidArgumentError(f"inputs: {type(inputs).__name__}, expected a mapping of names to arrays")
        request = Request(deadline, priority, self._c_signature(signature))
        layout = self._layouts.get(signature, self._unknown) if signature else self._default
        request.set_tensors(InputTensors(layout, inputs), outputs)
        return request

    def _c_signature(self, signature: str | None) -> Any:
        if not signature:
            return NULL
        found = self._c_names.get(signature)
        return c_text("signature", signature) if found is None else found
