# SPDX-License-Identifier: Apache-2.0
"""Call libprocessor.so like a host in another language: by the signatures of the drop-in contract, through ctypes.

Functions that the contract lacks (free, statistics, the log) are those of processor.h.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import processor

NOTICE, ERROR = 1, 2
_LOG_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
libc = ctypes.CDLL(None)
libc.free.argtypes, libc.free.restype = [c_void_p], None


class Answer(NamedTuple):
    """Contain the result of one of the contract's functions; `data` is None if it left no buffer."""

    status: int
    data: bytes | None

    @property
    def text(self) -> str:
        """Return the buffer of a failure."""
        assert self.data is not None
        return self.data.decode()


class LogLine(NamedTuple):
    severity: int
    text: str


class Error(ctypes.Structure):
    _fields_ = (("code", c_int32), ("message", ctypes.c_char * 1020))


class _LoadOptions(ctypes.Structure):
    _fields_ = (("struct_size", c_uint32), ("abi_version", c_uint32), ("path", c_char_p), ("config", c_char_p))


@cache
def library() -> ctypes.CDLL:
    """Return the library, with the signatures of its functions declared."""
    processor.load_library()  # finds TensorFlow and oneDNN for the library
    lib = ctypes.CDLL(str(processor.library_path()))
    out = [POINTER(c_void_p), POINTER(c_int)]
    lib.initialize.argtypes, lib.initialize.restype = [c_char_p, c_char_p, POINTER(c_int)], c_void_p
    lib.process.argtypes = [c_void_p, c_void_p, c_int, *out]
    lib.batch_process.argtypes = [c_void_p, POINTER(c_void_p), POINTER(c_int), *out]
    lib.get_serving_model_info.argtypes = [c_void_p, *out]
    lib.processor_status_name.argtypes, lib.processor_status_name.restype = [c_int32], c_char_p
    lib.processor_set_log_sink.argtypes, lib.processor_set_log_sink.restype = [c_void_p, c_void_p, c_int32], None
    lib.processor_model_load.argtypes = [POINTER(_LoadOptions), POINTER(c_void_p), POINTER(Error)]
    lib.processor_model_free.argtypes, lib.processor_model_free.restype = [c_void_p], None
    lib.processor_model_drain.argtypes = [c_void_p, c_int64, POINTER(Error)]
    lib.processor_model_set_cpuset.argtypes = [c_void_p, c_char_p, POINTER(Error)]
    for name in ("info", "signatures", "stats"):
        getattr(lib, f"processor_model_{name}").argtypes = [c_void_p, POINTER(c_void_p), POINTER(Error)]
    lib.processor_result_bytes.argtypes = [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]
    lib.processor_result_free.argtypes, lib.processor_result_free.restype = [c_void_p], None
    return lib


@contextmanager
def captured_log(severity: int = NOTICE) -> Iterator[list[LogLine]]:
    """Collect the library's log lines of at least `severity`, which would otherwise go to stderr."""
    lines: list[LogLine] = []
    sink = _LOG_FUNCTION(lambda _, level, message: lines.append(LogLine(level, message.decode(errors="replace"))))
    lib = library()
    lib.processor_set_log_sink(ctypes.cast(sink, c_void_p), None, severity)
    try:
        yield lines
    finally:
        lib.processor_set_log_sink(None, None, NOTICE)


def drop_in_config(path: str | Path, **keys: Any) -> dict[str, Any]:
    """Return the keys that the contract requires for a model, and additional ones."""
    required = {
        "signature_name": "serving_default",
        "savedmodel_dir": str(path),
        "feature_store_type": "local",
        "serialize_protocol": "protobuf",
        "model_store_type": "local",
    }
    return required | {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1} | keys


def initialize(config: dict[str, Any] | str | bytes | None, entry: str | None = "") -> tuple[int | None, int]:
    """Return the result of `initialize` and the state that it writes."""
    text = json.dumps(config) if isinstance(config, dict) else config
    raw = text.encode() if isinstance(text, str) else text
    state = c_int(77)
    handle = library().initialize(None if entry is None else entry.encode(), raw, byref(state))
    return handle, state.value


def refusal(config: dict[str, Any] | str | bytes | None, entry: str | None = "") -> str:
    """Return the reason in the log for an `initialize` that must fail."""
    with captured_log(ERROR) as lines:
        handle, state = initialize(config, entry)
    assert (handle, state) == (None, -1)
    assert len(lines) == 1, lines
    return lines[0].text


def process(handle: int | None, request: bytes | None, size: int | None = None) -> Answer:
    """Call `process`, copy its buffer and free it with libc's `free`."""
    data, length = c_void_p(0xDEAD), c_int(-7)
    size = len(request or b"") if size is None else size
    status = library().process(handle, request, size, byref(data), byref(length))
    return _take(status, data.value, length.value)


def batch_process(handle: int | None, requests: Sequence[bytes]) -> tuple[int, list[Answer]]:
    """Call `batch_process`; the status of each result is read from its text."""
    count = len(requests)
    buffers = [ctypes.create_string_buffer(request, len(request) + 1) for request in requests]
    inputs = (c_void_p * count)(*[ctypes.addressof(buffer) for buffer in buffers])
    sizes = (c_int * count)(*map(len, requests))
    data, lengths = (c_void_p * count)(*[0xDEAD] * count), (c_int * count)(*[-7] * count)
    status = library().batch_process(handle, inputs, sizes, data, lengths)
    answers = []
    for i in range(count):
        if data[i] == 0xDEAD:
            answers.append(Answer(0, None))  # not written
            continue
        text = ctypes.string_at(data[i] or 0, lengths[i]) if data[i] else b""
        answers.append(_take(500 if text.startswith(b"[TensorFlow]") else 200, data[i], lengths[i]))
    return status, answers


def get_serving_model_info(handle: int | None) -> Answer:
    data, length = c_void_p(0xDEAD), c_int(-7)
    status = library().get_serving_model_info(handle, byref(data), byref(length))
    return _take(status, data.value, length.value)


def _take(status: int, data: int | None, length: int) -> Answer:
    if data is None:
        assert length == 0
        return Answer(status, None)
    copy = ctypes.string_at(data, length)
    libc.free(data)
    return Answer(status, copy)


class DropInModel:
    """Own a model that `initialize` loaded; free it at the end of a `with` statement."""

    def __init__(self, path: str | Path = "", entry: str | None = "", **keys: Any) -> None:
        with captured_log() as self.log:
            self.handle, state = initialize(drop_in_config(path, **keys), entry)
        assert self.handle is not None, self.log
        assert state == 0, self.log

    @classmethod
    def of(cls, handle: int | None) -> DropInModel:
        """Return a model that `initialize` has returned."""
        assert handle is not None
        model = cls.__new__(cls)
        model.handle, model.log = handle, []
        return model

    def __enter__(self) -> DropInModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def process(self, request: bytes) -> Answer:
        return process(self.handle, request)

    def batch(self, requests: Sequence[bytes]) -> tuple[int, list[Answer]]:
        return batch_process(self.handle, requests)

    def ask(self, name: str) -> Any:
        """Return the JSON of `processor_model_<name>`."""
        lib, error = library(), Error()
        result, data, size = c_void_p(), c_void_p(), c_size_t()
        question: Callable[..., int] = getattr(lib, f"processor_model_{name}")
        assert question(self.handle, byref(result), byref(error)) == 0, error.message
        lib.processor_result_bytes(result, byref(data), byref(size))
        text = ctypes.string_at(data.value or 0, size.value)
        lib.processor_result_free(result)
        return json.loads(text)

    def set_cpuset(self, cpuset: str) -> tuple[str, str]:
        """Return the name of the status, and the message."""
        error = Error()
        status = library().processor_model_set_cpuset(self.handle, cpuset.encode(), byref(error))
        return status_name(status), error.message.decode()

    def close(self) -> None:
        library().processor_model_free(self.handle)


def status_name(status: int) -> str:
    name: bytes = library().processor_status_name(status)
    return name.decode()


def load(path: str | Path | None, config: dict[str, Any] | None = None) -> tuple[str, str]:
    """Load by processor.h and free at once; return the name of the status, and the message."""
    options = _LoadOptions(ctypes.sizeof(_LoadOptions), library().processor_abi_version())
    options.path = None if path is None else str(path).encode()
    options.config = None if config is None else json.dumps(config).encode()
    handle, error = c_void_p(), Error()
    status = library().processor_model_load(byref(options), byref(handle), byref(error))
    assert (handle.value is None) == (status != 0)
    library().processor_model_free(handle)
    return status_name(status), error.message.decode()
