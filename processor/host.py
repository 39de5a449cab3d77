# SPDX-License-Identifier: Apache-2.0
"""Serve many models in one process, as a file in a state directory specifies."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from processor._answer import Answer
from processor._completions import loop_queue
from processor._ffi import NULL, ffi
from processor._host_request import HostRequest
from processor._owner import Owner
from processor._result import Result
from processor._tensors import c_text
from processor.errors import check_error, make_error


class Host(Owner):
    """Serves the models and versions that `desired.json` in a state directory names, and follows changes of that file.

    Creating a host does not wait for models; `status` shows their progress. Any number of threads may call any method
    at the same time, even while the host is being closed. The GIL is released while the library works. Use a host in a
    `with` statement, or call `close`. docs/model_host.md describes the files, routing and statistics.

    Parameters
    ----------
    state_dir : path-like
        Existing folder.
    host_id : str
        Only one process at a time may use an id.
    maintenance_cpus : str, optional
        CPUs on which versions are loaded, for example "0-1"; by default as desired.json specifies.
    owns_process : bool
        The process does nothing else; set it for at most one host per process. While baselines have CPUs of their own,
        the threads of the process, except session and background threads, are moved to the other CPUs. This only
        happens if those CPUs have enough capacity to read requests and write responses.
    max_request_bytes : int [bytes]
        As for `set_max_request_bytes`; 0: the limit stays as it is.

    Raises
    ------
    InvalidArgumentError
        If the id, the CPUs or the number of bytes is invalid.
    AlreadyExistsError
        If a host with that id is running.
    PermissionDeniedError, UnavailableError
        If the folder cannot be written.
    """

    _kind = "host"

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        host_id: str = "host-0",
        maintenance_cpus: str | None = None,
        *,
        owns_process: bool = False,
        max_request_bytes: int = 0,
    ) -> None:
        super().__init__(host_id)
        options = ffi.new("processor_host_options *")
        options.struct_size = ffi.sizeof("struct processor_host_options")
        options.abi_version = ffi.integer_const("PROCESSOR_ABI_VERSION")
        cpus = NULL if maintenance_cpus is None else c_text("maintenance_cpus", maintenance_cpus)
        kept = [c_text("state_dir", os.fspath(state_dir)), c_text("host_id", host_id), cpus]
        options.state_dir, options.host_id, options.maintenance_cpus = kept
        options.owns_process = owns_process
        options.max_request_bytes_in_flight = max_request_bytes
        host, error = ffi.new("processor_host **"), ffi.new("processor_error *")
        check_error(self._lib.processor_host_create(options, host, error), error)
        self._own(host[0])

    def process(
        self,
        protocol: str,
        data: Any,
        *,
        method: str | None = None,
        model_name: str | None = None,
        model_version: int = 0,
        version_label: str | None = None,
        metadata: Mapping[str, str | bytes] | None = None,
        deadline: float | None = None,
        priority: int = 0,
        only_if_bounded: bool = False,
    ) -> Answer:
        """Run one serialized request and return the response.

        Parameters
        ----------
        protocol : str
            For example "tfserving" or "eas"; see docs/model_host.md.
        data : bytes-like
            The request.
        method : str, optional
            By default the first one of the protocol.
        model_name, model_version, version_label : optional
            What the request says about its model outside of its bytes, for example in a URL.
        metadata : mapping, optional
            Entries like gRPC metadata or HTTP headers; "x-routing-key" decides the arm of an experiment.
        deadline : float, optional [s]
            On the clock of `time.monotonic()`. A request that is not complete by then fails. If it is running, it stops
            at its next kernel, and only then this call raises. `aprocess` raises at once.
        priority : int
            A larger number is more urgent. It affects only requests that wait.
        only_if_bounded : bool
            Do not run the request if its graph has loops, because its duration is then unknown, or if it asks for an
            epoch. For callers that block other work.

        Returns
        -------
        Answer
            The response, and the model version that produced it.

        Raises
        ------
        NotFoundError, UnavailableError
            If the model, version or label is not served, or is not ready.
        ResourceExhaustedError
            If too many requests are waiting.
        AbortedError
            Without an `answer`: the request was not run because of `only_if_bounded`.
        ProcessorError
            Every error has the attribute `answer`: None, or an Answer without bytes that contains what is known, such
            as `retry_after_us`.
        """
        about_model = (model_name, model_version, version_label)
        request = HostRequest(protocol, data, method, *about_model, metadata, deadline, priority, only_if_bounded)
        return self._process(request)

    async def aprocess(
        self,
        protocol: str,
        data: Any,
        *,
        method: str | None = None,
        model_name: str | None = None,
        model_version: int = 0,
        version_label: str | None = None,
        metadata: Mapping[str, str | bytes] | None = None,
        deadline: float | None = None,
        priority: int = 0,
    ) -> Answer:
        """Run one serialized request as `process` does, without blocking the event loop.

        Cancelling the task cancels the request; if it is running, it stops at its next kernel.
        """
        request = HostRequest(
            protocol, data, method, model_name, model_version, version_label, metadata, deadline, priority
        )
        loop = asyncio.get_running_loop()
        return (await loop_queue(loop).run_on_host(loop, self._open_handle(), request.struct)).to_answer()

    def _process(self, request: HostRequest) -> Answer:
        result, error = ffi.new("processor_result **"), ffi.new("processor_error *")
        status = self._lib.processor_host_process(self._open_handle(), request.struct, result, error)
        answer = None if result[0] == NULL else Result(result[0]).to_answer()
        if status or answer is None:
            failure = make_error(error)
            failure.answer = answer
            raise failure
        return answer

    def status(self) -> dict[str, Any]:
        """Return the models that are served: the content of actual.json, with current values."""
        status: dict[str, Any] = json.loads(self._ask(self._lib.processor_host_status).to_bytes())
        return status

    def metrics(self) -> str:
        """Return counters and histograms in the text format of Prometheus."""
        return self._ask(self._lib.processor_host_metrics).to_bytes().decode()

    def set_endpoint(self, name: str, address: str | None) -> None:
        """Publish in actual.json the address at which the host program listens; None removes the entry."""
        error = ffi.new("processor_error *")
        c_address = NULL if address is None else c_text("address", address)
        check_error(
            self._lib.processor_host_set_endpoint(self._open_handle(), c_text("name", name), c_address, error), error
        )

    def claim_port(self, address: str, port: int) -> None:
        """Reserve a port for the state directory until the host is closed; call this before listening on the port.

        Raises
        ------
        AlreadyExistsError
            If a host of another state directory has reserved it; the message names both.
        """
        error = ffi.new("processor_error *")
        check_error(
            self._lib.processor_host_claim_port(self._open_handle(), c_text("address", address), port, error), error
        )

    def prepare_end(self) -> None:
        """Stop loading versions, because the process is about to exit normally; requests are still served.

        Without this call, exiting while a version is being loaded counts as a crash caused by that version.
        """
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_host_prepare_end(self._open_handle(), error), error)
