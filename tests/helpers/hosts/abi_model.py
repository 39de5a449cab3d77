# SPDX-License-Identifier: Apache-2.0
"""Load a model through the C ABI, which shows more than the Python package: sessions, generations, completions."""

from __future__ import annotations

import json
import select
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from processor._ffi import NULL, ffi
from processor._lib import get_lib

# Arrays, and bytes for a scalar string.
Inputs = dict[str, Any]

_DTYPES = {np.dtype(np.float32): "PROCESSOR_FLOAT", np.dtype(np.int32): "PROCESSOR_INT32"}


def status_name(code: int) -> str:
    """Return the canonical name of a status, for example "CANCELLED"."""
    name: str = ffi.string(get_lib().processor_status_name(code)).decode()
    return name


class StatusError(Exception):
    """The library returned a status other than OK."""

    def __init__(self, error: Any) -> None:
        self.status = status_name(error.code)
        super().__init__(f"{self.status}: {ffi.string(error.message).decode()}")


@dataclass(frozen=True)
class Answer:
    """Contain the first output of a request, and how the request was run."""

    y: np.ndarray
    session: int
    model_version: int
    generation: int
    queue_ns: int
    run_ns: int


@dataclass(frozen=True)
class Completion:
    """Contain the end of an asynchronous request."""

    tag: int
    status: str
    answer: Answer | None
    time: float


class AbiModel:
    """Own a loaded model and a queue of completions."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self._lib = get_lib()
        text, name = ffi.new("char[]", json.dumps(config).encode()), ffi.new("char[]", str(path).encode())
        options = ffi.new("processor_load_options *")
        options.struct_size = ffi.sizeof("struct processor_load_options")
        options.abi_version = self._lib.processor_abi_version()
        options.path, options.config = name, text
        model, queue = ffi.new("processor_model **"), ffi.new("processor_queue **")
        self._call(self._lib.processor_model_load, options, model)
        self._model = model[0]
        self._call(self._lib.processor_queue_create, queue)
        self._queue = queue[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()
        self._lib.processor_queue_free(self._queue)

    def free(self) -> None:
        """Free the model, but not yet the queue."""
        self._lib.processor_model_free(self._model)

    @property
    def queue_fd(self) -> int:
        """Return the descriptor that is readable while completions wait."""
        fd: int = self._lib.processor_queue_fd(self._queue)
        return fd

    def run(self, inputs: Inputs, deadline_us: int = 0, priority: int = 0) -> Answer:
        """Run a request and wait for it."""
        request, _kept = _request(inputs, deadline_us, priority)
        result = ffi.new("processor_result **")
        self._call(self._lib.processor_model_run, self._model, request, result)
        return self._take(result[0])

    def start(
        self, inputs: Inputs, tag: int, deadline_us: int = 0, priority: int = 0, signature: str | None = None
    ) -> int:
        """Start a request that ends in the queue; return its tag."""
        request, _kept = _request(inputs, deadline_us, priority)
        name = ffi.new("char[]", (signature or "").encode())
        request.signature_name = name
        target, number = ffi.new("processor_target *"), ffi.new("uint64_t *")
        target.struct_size = ffi.sizeof("struct processor_target")
        target.tag, target.queue = tag, self._queue
        self._call(self._lib.processor_model_run_async, self._model, request, target, number)
        return int(number[0])

    def cancel(self, number: int) -> None:
        """Cancel a waiting request."""
        self._call(self._lib.processor_model_cancel, self._model, number)

    def drain(self, deadline_us: int = 0) -> None:
        """Wait until no request remains."""
        self._call(self._lib.processor_model_drain, self._model, deadline_us)

    def set_cpuset(self, cpuset: str) -> None:
        """Move the sessions to other CPUs."""
        self._call(self._lib.processor_model_set_cpuset, self._model, cpuset.encode())

    def ask(self, what: str) -> Any:
        """Return the result of "info", "stats" or "signatures"."""
        result = ffi.new("processor_result **")
        self._call(getattr(self._lib, f"processor_model_{what}"), self._model, result)
        data, size = ffi.new("const void **"), ffi.new("size_t *")
        assert self._lib.processor_result_bytes(result[0], data, size) == 0
        text = bytes(ffi.buffer(data[0], size[0]))
        self._lib.processor_result_free(result[0])
        return json.loads(text)

    def completions(self, count: int, timeout: float = 60.0) -> list[Completion]:
        """Wait on the descriptor for `count` completions."""
        taken: list[Completion] = []
        end = time.monotonic() + timeout
        memory = ffi.new("processor_completion[]", 8)
        while len(taken) < count:
            left = end - time.monotonic()
            assert left > 0, f"{len(taken)} of {count} completions after {timeout} s"
            select.select([self.queue_fd], [], [], left)
            number = self._lib.processor_queue_next(self._queue, memory, min(8, count - len(taken)))
            for completion in memory[0:number]:
                answer = None if completion.result == NULL else self._take(completion.result)
                status = status_name(completion.error.code)
                taken.append(Completion(completion.tag, status, answer, time.monotonic()))
        return taken

    def _take(self, result: Any) -> Answer:
        tensor, info = ffi.new("processor_tensor *"), ffi.new("processor_result_info *")
        tensor.struct_size = ffi.sizeof("struct processor_tensor")
        info.struct_size = ffi.sizeof("struct processor_result_info")
        assert self._lib.processor_result_tensor(result, 0, tensor) == 0
        assert self._lib.processor_result_get_info(result, info) == 0
        y = np.frombuffer(bytes(ffi.buffer(tensor.data, tensor.size)), np.float32)
        y = y.reshape([tensor.dims[i] for i in range(tensor.rank)])
        self._lib.processor_result_free(result)
        return Answer(y, info.session, info.model_version, info.generation, info.queue_ns, info.run_ns)

    def _call(self, function: Any, *arguments: Any) -> None:
        error = ffi.new("processor_error *")
        if function(*arguments, error):
            raise StatusError(error)


def _request(inputs: Inputs, deadline_us: int, priority: int) -> tuple[Any, Any]:
    request = ffi.new("processor_request *")
    request.struct_size = ffi.sizeof("struct processor_request")
    request.deadline_us, request.priority = deadline_us, priority
    tensors = ffi.new("processor_tensor[]", len(inputs))
    kept: list[Any] = [tensors]
    for tensor, (name, value) in zip(tensors, inputs.items(), strict=True):
        if isinstance(value, bytes):
            value, dtype = np.array(value), "PROCESSOR_STRING"
            tensor.item_size = value.itemsize
        else:
            dtype = _DTYPES[value.dtype]
        c_name, dims, data = ffi.new("char[]", name.encode()), ffi.new("int64_t[]", value.shape), value.tobytes()
        buffer = ffi.from_buffer(data)
        kept += [c_name, dims, buffer]
        tensor.struct_size = ffi.sizeof("struct processor_tensor")
        tensor.dtype = ffi.integer_const(dtype)
        tensor.name, tensor.dims, tensor.rank = c_name, dims, value.ndim
        tensor.data, tensor.size = buffer, len(data)
    request.inputs, request.num_inputs = tensors, len(inputs)
    return request, kept
