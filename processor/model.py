# SPDX-License-Identifier: Apache-2.0
"""Load a model and run requests on it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from processor._completions import loop_queue
from processor._ffi import NULL, ffi
from processor._owner import Owner
from processor._request import Request, RequestFactory
from processor._result import Result
from processor._tensors import c_text
from processor.errors import InvalidArgumentError, ProcessorError, check_error, make_error
from processor.signature import Signature, parse_signatures

_REQUEST_SIZE: int = ffi.sizeof("struct processor_request")


class Model(Owner):
    """A SavedModel that is loaded into a group of sessions, which share its variables.

    Loading blocks until every session is warm: a model is either ready or failed, never partially loaded. Any number of
    threads may call any method at the same time, even while the model is being closed. The GIL is released while the
    library works. Use a model in a `with` statement, or call `close`.

    Parameters
    ----------
    path : path-like, optional
        Folder that contains saved_model.pb; None if the configuration names it (`savedmodel_dir`).
    config : mapping or str, optional
        Configuration as a mapping or as JSON text; see docs/configuration.md.

    Raises
    ------
    InvalidArgumentError
        If a key of the configuration is unknown or out of range.
    NotFoundError
        If a folder, file, signature or the library is missing.
    DataLossError, InternalError
        If the model is damaged.
    UnimplementedError
        If the model has ops that TensorFlow itself does not contain.
    FailedPreconditionError
        If the library does not match this package or the installed TensorFlow.
    """

    _kind = "model"

    def __init__(
        self, path: str | os.PathLike[str] | None = None, config: Mapping[str, Any] | str | None = None
    ) -> None:
        super().__init__(os.fspath(path) if path is not None else "savedmodel_dir")
        text = _config_text(config)
        options = ffi.new("processor_load_options *")
        options.struct_size = ffi.sizeof("struct processor_load_options")
        options.abi_version = ffi.integer_const("PROCESSOR_ABI_VERSION")
        kept = [NULL if path is None else c_text("path", self._name), NULL if text is None else c_text("config", text)]
        options.path, options.config = kept
        model, error = ffi.new("processor_model **"), ffi.new("processor_error *")
        check_error(self._lib.processor_model_load(options, model, error), error)
        self._own(model[0])
        self._signatures = parse_signatures(self._ask(self._lib.processor_model_signatures).to_json())
        self._requests = RequestFactory(self._signatures)

    @property
    def signatures(self) -> dict[str, Signature]:
        """Return the signatures, by name."""
        self._open_handle()
        return self._signatures

    @property
    def info(self) -> dict[str, Any]:
        """Return what is loaded now: path, version, sessions, executor, warm-up and more; see docs/observability.md."""
        info: dict[str, Any] = self._ask(self._lib.processor_model_info).to_json()
        return info

    def stats(self) -> dict[str, Any]:
        """Return counters and latencies [us] since loading; see docs/observability.md."""
        stats: dict[str, Any] = self._ask(self._lib.processor_model_stats).to_json()
        return stats

    def run(
        self,
        inputs: Mapping[str, Any],
        signature: str | None = None,
        outputs: Sequence[str] | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run one request of arrays.

        Parameters
        ----------
        inputs : mapping of str to array
            Arrays by alias or by name of the tensor. An array must have the dtype of the signature. It is not copied
            if it is contiguous in row-major order and its address is a multiple of 64. Strings may be arrays of kind
            S, U or T, arrays of objects, or nested lists of `bytes` or `str`. Zero bytes at the end of an S element are
            dropped, as in NumPy. Python numbers and nested lists of numbers are converted to the dtype of the
            signature if it can represent them.
        signature : str, optional
            By default the model's default signature.
        outputs : list of str, optional
            Aliases or tensor names, in the wanted order; all by default.
        deadline : float, optional [s]
            On the clock of `time.monotonic()`. A request that is not running by then fails.
        priority : int
            A larger number is more urgent. It affects only requests that wait.

        Returns
        -------
        dict of str to ndarray
            Numeric arrays are read-only views of the library's memory, which is freed with the last view; views may
            outlive the model. Strings are arrays of `bytes` objects.

        Raises
        ------
        InvalidArgumentError
            If an input is missing, unknown, or has the wrong dtype or shape.
        NotFoundError
            If the signature or an output is unknown.
        DeadlineExceededError, ResourceExhaustedError, UnavailableError
            If the request came too late, the queue is full, or the model is draining.
        FailedPreconditionError
            If the model is closed.
        """
        return self._run(self._requests.tensor_request(inputs, signature, outputs, deadline, priority)).to_arrays()

    async def arun(
        self,
        inputs: Mapping[str, Any],
        signature: str | None = None,
        outputs: Sequence[str] | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run one request of arrays as `run` does, without blocking the event loop.

        The arrays are copied before the first suspension. Cancelling the task cancels the request if it still waits.
        """
        request = self._requests.tensor_request(inputs, signature, outputs, deadline, priority)
        return (await self._arun(request)).to_arrays()

    def process(
        self,
        data: Any,
        protocol: str = "eas",
        signature: str | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> bytes:
        """Run one serialized request and return the serialized response.

        Parameters
        ----------
        data : bytes-like
            The request. With "eas", an empty request returns the signature, as JSON.
        protocol : str
            "eas" (DeepRec Processor), "tfserving" (PredictRequest), "tfserving_json", "kserve" or "kserve_json"; see
            docs/protocols.md.
        signature : str, optional
            Used instead of the signature named in the request.
        deadline, priority
            See `run`.

        Raises
        ------
        InvalidArgumentError
            If the protocol is unknown; all other errors as for `run`.
        """
        return self._run(self._requests.bytes_request(data, protocol, signature, deadline, priority)).to_bytes()

    async def aprocess(
        self,
        data: Any,
        protocol: str = "eas",
        signature: str | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> bytes:
        """Run one serialized request as `process` does, without blocking the event loop."""
        request = self._requests.bytes_request(data, protocol, signature, deadline, priority)
        return (await self._arun(request)).to_bytes()

    @overload
    def process_many(
        self,
        data: Iterable[Any],
        protocol: str = ...,
        signature: str | None = ...,
        deadline: float | None = ...,
        priority: int = ...,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> list[bytes]: ...

    @overload
    def process_many(
        self,
        data: Iterable[Any],
        protocol: str = ...,
        signature: str | None = ...,
        deadline: float | None = ...,
        priority: int = ...,
        *,
        return_exceptions: bool,
    ) -> list[bytes | ProcessorError]: ...

    def process_many(
        self,
        data: Iterable[Any],
        protocol: str = "eas",
        signature: str | None = None,
        deadline: float | None = None,
        priority: int = 0,
        *,
        return_exceptions: bool = False,
    ) -> list[bytes] | list[bytes | ProcessorError]:
        """Run several serialized requests, spread over the sessions, each as `process` would run it.

        Parameters
        ----------
        data : iterable of bytes-like
        protocol, signature, deadline, priority
            See `process`; the same for all requests.
        return_exceptions : bool
            True: the exception of a failed request takes its place in the list. False: the exception of the first
            failed request is raised after all requests have ended.

        Returns
        -------
        list of bytes
            Responses in the order of the requests.
        """
        requests = [self._requests.bytes_request(item, protocol, signature, deadline, priority) for item in data]
        answers = [
            answer if isinstance(answer, ProcessorError) else answer.to_bytes() for answer in self._many(requests)
        ]
        if not return_exceptions:
            for answer in answers:
                if isinstance(answer, ProcessorError):
                    raise answer
        return answers

    def set_cpuset(self, cpuset: str) -> None:
        """Move the sessions to other CPUs without reloading the model.

        Parameters
        ----------
        cpuset : str
            One group of CPUs and ranges per session: "0-3;4-7", "0,2;1,3". Empty: all CPUs that the process may use.

        Raises
        ------
        InvalidArgumentError
            If it does not parse, the number of groups differs from the number of sessions, or it names a CPU that the
            process may not use. In these cases nothing has changed.
        """
        error = ffi.new("processor_error *")
        text = c_text("cpuset", cpuset)
        check_error(self._lib.processor_model_set_cpuset(self._open_handle(), text, error), error)

    def set_batching(
        self, mode: Literal["off", "zero_wait", "timed"], max_rows: int = 256, max_wait_us: int = 1000
    ) -> None:
        """Change how requests are batched, from now on.

        Parameters
        ----------
        mode : {"off", "zero_wait", "timed"}
            "zero_wait": a session that becomes free runs all waiting requests. "timed": it first waits for more.
        max_rows : int
            Maximum of one batch.
        max_wait_us : int [us]
            Longest wait of any request, with "timed".

        Raises
        ------
        InvalidArgumentError
            If the mode is unknown or a number is out of range. In these cases nothing has changed.
        """
        options = {"mode": mode, "max_rows": max_rows, "max_wait_us": max_wait_us}
        error, text = ffi.new("processor_error *"), c_text("batching", json.dumps(options))
        check_error(self._lib.processor_model_set_batching(self._open_handle(), text, error), error)

    def _run(self, request: Request) -> Result:
        result, error = ffi.new("processor_result **"), ffi.new("processor_error *")
        check_error(self._lib.processor_model_run(self._open_handle(), request.struct, result, error), error)
        return Result(result[0])

    async def _arun(self, request: Request) -> Result:
        loop = asyncio.get_running_loop()
        return await loop_queue(loop).run(loop, self._open_handle(), request.struct)

    def _many(self, requests: list[Request]) -> list[Result | ProcessorError]:
        number = len(requests)
        structs = ffi.new("processor_request[]", number)
        for index, request in enumerate(requests):
            ffi.memmove(ffi.addressof(structs, index), request.struct, _REQUEST_SIZE)
        results, errors = ffi.new("processor_result *[]", number), ffi.new("processor_error[]", number)
        self._lib.processor_model_run_batch(self._open_handle(), structs, number, results, errors)
        return [
            make_error(error) if error.code else Result(result) for result, error in zip(results, errors, strict=True)
        ]


def _config_text(config: Mapping[str, Any] | str | None) -> str | None:
    if config is None or isinstance(config, str):
        return config
    try:
        return json.dumps(dict(config), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"config: {error}, expected values that JSON can represent") from error
