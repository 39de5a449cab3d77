# SPDX-License-Identifier: Apache-2.0
"""Represent requests to a host as C structs, with all memory that they point to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from processor._ffi import NULL, ffi
from processor._request import checked_priority, deadline_us
from processor._tensors import c_text
from processor.errors import InvalidArgumentError

_REQUEST_SIZE: int = ffi.sizeof("struct processor_host_request")
_INT64_MAX = 2**63 - 1


# Protocols, methods, models and keys repeat from request to request.
_shared_text = lru_cache(maxsize=1024)(c_text)


class HostRequest:
    """One request (`struct`, a `processor_host_request`) and its memory, which must outlive the call."""

    __slots__ = ("_kept", "struct")

    def __init__(
        self,
        protocol: str,
        data: Any,
        method: str | None,
        model_name: str | None,
        model_version: int,
        version_label: str | None,
        metadata: Mapping[str, str | bytes] | None,
        deadline: float | None,
        priority: int,
        only_if_bounded: bool = False,
    ) -> None:
        """Accept the arguments of `Host.process`."""
        try:
            buffer = ffi.from_buffer(data)
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidArgumentError(f"data: {type(data).__name__}, expected contiguous bytes") from error
        if not isinstance(model_version, int) or not 0 <= model_version <= _INT64_MAX:
            raise InvalidArgumentError(f"model_version: {model_version!r}, expected 1 or more, or 0 for none")
        self.struct = ffi.new("processor_host_request *")
        self.struct.struct_size = _REQUEST_SIZE
        self.struct.priority = checked_priority(priority)
        self.struct.only_if_bounded = only_if_bounded
        self.struct.deadline_us = deadline_us(deadline)
        self.struct.data = buffer
        self.struct.size = ffi.sizeof(buffer)
        self.struct.model_version = model_version
        self._kept: list[Any] = [buffer]
        self.struct.protocol = self._text("protocol", protocol)
        self.struct.method = self._text("method", method)
        self.struct.model_name = self._text("model_name", model_name)
        self.struct.version_label = self._text("version_label", version_label)
        if metadata:
            self._set_metadata(metadata)

    def _text(self, name: str, text: str | None) -> Any:
        if not text:
            return NULL
        kept = _shared_text(name, text)
        self._kept.append(kept)
        return kept

    def _set_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        pairs = ffi.new("processor_pair[]", len(metadata))
        for pair, (key, value) in zip(pairs, metadata.items(), strict=True):
            try:
                held = ffi.from_buffer(value.encode() if isinstance(value, str) else value)
            except (TypeError, ValueError, BufferError) as error:
                raise InvalidArgumentError(f"metadata {key!r}: {type(value).__name__}, expected bytes") from error
            pair.key = self._text("metadata", key)
            pair.value = held
            pair.value_size = ffi.sizeof(held)
            self._kept.append(held)
        self._kept.append(pairs)
        self.struct.metadata = pairs
        self.struct.num_metadata = len(metadata)
