# SPDX-License-Identifier: Apache-2.0
"""A loaded model."""

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
from processor._request import Request, RequestFactory, deadline_us
from processor._result import Result
from processor._tensors import c_text
from processor.errors import InvalidArgumentError, ProcessorError, check_error, make_error
from processor.signature import Signature, parse_signatures

_REQUEST_SIZE: int = ffi.sizeof("struct processor_request")


class Model(Owner):
    """A SavedModel, loaded into a group of sessions that share its variables.

    Loading blocks until every session is warm: a model is ready or it failed, never half loaded. Every method may be
    called from any number of threads at once, also while the model is closed; the GIL is released while the library
    works. Use it in a `with` statement, or call `close`.

    Parameters
    ----------
    path : path-like, optional
        Folder that holds saved_model.pb; None if the configuration names it (`savedmodel_dir`).
    config : mapping or str, optional
        Configuration, or its JSON text; see docs/configuration.md.

    Raises
    ------
    InvalidArgumentError
        For a key of the configuration that is unknown or out of range.
    NotFoundError
        For a missing folder, file or signature, or a missing library.
    DataLossError, InternalError
        For a damaged model.
    UnimplementedError
        For ops that are not TensorFlow's own.
    FailedPreconditionError
        If the library does not fit this package or the installed TensorFlow.
    """

    _kind = "model"
    _free = "processor_model_free"

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
        """The signatures, by name."""
        self._open_handle()
        return self._signatures

    @property
    def info(self) -> dict[str, Any]:
        """What is loaded now: path, version, sessions, executor, warm-up and more; see docs/observability.md."""
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
            By alias, or by name of the tensor. An array must have the dtype of the signature, and is not copied
            if it is contiguous in row-major order and its address a multiple of 64. Strings come as arrays of kind
            S, U or T, or as arrays of objects or nested lists of `bytes` or `str`; zero bytes at the end of an S
            element are dropped, as NumPy does. Python numbers and nested lists of them take the dtype of the
            signature, if it can hold them.
        signature : str, optional
            By default the model's.
        outputs : list of str, optional
            Aliases or tensor names, in the order wanted; all by default.
        deadline : float, optional [s]
            On the clock of `time.monotonic()`. A request not yet running by then fails.
        priority : int
            Larger is more urgent. Concerns requests that wait.

        Returns
        -------
        dict of str to ndarray
            Numbers are read-only views of the library's memory, which is freed with the last of them; they may
            outlive the model. Strings are arrays of `bytes` objects.

        Raises
        ------
        InvalidArgumentError
            For an input that is missing, unknown, or of wrong dtype or shape.
        NotFoundError
            For an unknown signature or output.
        DeadlineExceededError, ResourceExhaustedError, UnavailableError
            For a request that came too late, to a full queue, or to a model that drains.
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
        """Answer one serialized request with the serialized response.

        Parameters
        ----------
        data : bytes-like
            The request. An empty one in "eas" asks for the signature, as JSON.
        protocol : str
            "eas" (DeepRec Processor), "tfserving" (PredictRequest), "tfserving_json", "kserve" or "kserve_json"; see
            docs/protocols.md.
        signature : str, optional
            Used instead of the one named in the request.
        deadline, priority
            See `run`.

        Raises
        ------
        UnimplementedError
            For an unknown protocol; everything else as `run`.
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
        """Answer one serialized request as `process` does, without blocking the event loop."""
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
        """Answer several serialized requests, spread over the sessions, each as `process` would.

        Parameters
        ----------
        data : iterable of bytes-like
        protocol, signature, deadline, priority
            See `process`; the same for all.
        return_exceptions : bool
            True puts the exception of a failed request in its place. False raises that of the first one, after all
            have ended.

        Returns
        -------
        list of bytes
            In the order of the requests.
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
        """Move the sessions to other CPUs, without reloading the model.

        Parameters
        ----------
        cpuset : str
            One group of CPUs and ranges per session: "0-3;4-7", "0,2;1,3". Empty: all that the process may use.

        Raises
        ------
        InvalidArgumentError
            If it does not parse, has another number of groups than there are sessions, or names a CPU that the
            process may not use. Nothing has changed then.
        """
        error = ffi.new("processor_error *")
        text = c_text("cpuset", cpuset)
        check_error(self._lib.processor_model_set_cpuset(self._open_handle(), text, error), error)

    def set_batching(
        self, mode: Literal["off", "zero_wait", "timed"], max_rows: int = 256, max_wait_us: int = 1000
    ) -> None:
        """Change how requests are put together, from now on.

        Parameters
        ----------
        mode : {"off", "zero_wait", "timed"}
            "zero_wait": a session that becomes free takes all that wait. "timed": it waits for more first.
        max_rows : int
            Of one run.
        max_wait_us : int [us]
            Of any request, with "timed".

        Raises
        ------
        InvalidArgumentError
            For an unknown mode or a number out of its range. Nothing has changed then.
        """
        options = {"mode": mode, "max_rows": max_rows, "max_wait_us": max_wait_us}
        error, text = ffi.new("processor_error *"), c_text("batching", json.dumps(options))
        check_error(self._lib.processor_model_set_batching(self._open_handle(), text, error), error)

    def drain(self, deadline: float | None = None) -> None:
        """Refuse new requests and wait until the admitted ones have been answered.

        Parameters
        ----------
        deadline : float, optional [s]
            On the clock of `time.monotonic()`; by default it waits without end.

        Raises
        ------
        DeadlineExceededError
            If requests are left by then; the model goes on draining.
        """
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_model_drain(self._open_handle(), deadline_us(deadline), error), error)

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
        raise InvalidArgumentError(f"config: {error}, expected what JSON can hold") from error
