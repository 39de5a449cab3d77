# SPDX-License-Identifier: Apache-2.0
"""Many models in one process, as a file in a state directory says."""

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
from processor._request import deadline_us
from processor._result import Result
from processor._tensors import c_text
from processor.errors import check_error, make_error


class Host(Owner):
    """Serves the models and versions that `desired.json` in a state directory names, and follows that file.

    Creating it does not wait for models; `status` shows how far they are. Every method may be called from any number of
    threads at once, also while the host is closed; the GIL is released while the library works. Use it in a `with`
    statement, or call `close`. docs/model_host.md describes the files, routing and statistics.

    Parameters
    ----------
    state_dir : path-like
        It must be there.
    host_id : str
        One process at a time has it.
    maintenance_cpus : str, optional
        CPUs that versions are loaded on, as in "0-1"; by default as desired.json says.
    owns_process : bool
        The process does nothing else. While baselines have CPUs to themselves, its threads, but for those
        of sessions and what works in the background, are moved to the other CPUs, if these have room for what reading
        requests and writing answers takes. Of one host in a process.
    max_request_bytes : int [bytes]
        As for `set_max_request_bytes`; 0: as it is.

    Raises
    ------
    InvalidArgumentError
        For an id, CPUs or bytes that cannot be.
    AlreadyExistsError
        If a host with that id runs.
    PermissionDeniedError, UnavailableError
        For a folder that cannot be written.
    """

    _kind = "host"
    _free = "processor_host_free"

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
        """Answer one serialized request.

        Parameters
        ----------
        protocol : str
            "tfserving", "eas" and so on; see docs/model_host.md.
        data : bytes-like
            The request.
        method : str, optional
            By default the first one of the protocol.
        model_name, model_version, version_label : optional
            What the request says of its model outside of its bytes, as in a URL.
        metadata : mapping, optional
            As gRPC's metadata or HTTP's headers; "x-routing-key" decides the arm of an experiment.
        deadline : float, optional [s]
            On the clock of `time.monotonic()`. A request that has not been answered by then fails; what runs stops at
            its next kernel, and this returns then. `aprocess` raises at once.
        priority : int
            Larger is more urgent. Concerns requests that wait.
        only_if_bounded : bool
            Do not run the request if its graph has loops, so that nobody knows how long it takes: for callers that
            others wait for.

        Returns
        -------
        Answer
            The response, and who gave it.

        Raises
        ------
        NotFoundError, UnavailableError
            For a model, version or label that is not served, or not ready.
        ResourceExhaustedError
            If too many requests wait.
        AbortedError
            Without an `answer`: it was not run, because of `only_if_bounded`.
        ProcessorError
            Whatever else it is, it has the attribute `answer`: an Answer without bytes that says what is known, such as
            `retry_after_us`, or None.
        """
        request = HostRequest(
            protocol,
            data,
            method,
            model_name,
            model_version,
            version_label,
            metadata,
            deadline,
            priority,
            only_if_bounded,
        )
        result, error = ffi.new("processor_result **"), ffi.new("processor_error *")
        status = self._lib.processor_host_process(self._open_handle(), request.struct, result, error)
        answer = None if result[0] == NULL else Result(result[0]).to_answer()
        if status or answer is None:
            failure = make_error(error)
            failure.answer = answer
            raise failure
        return answer

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
        """Answer one serialized request as `process` does, without blocking the event loop.

        Cancelling the task cancels the request; what runs of it stops at its next kernel.
        """
        request = HostRequest(
            protocol, data, method, model_name, model_version, version_label, metadata, deadline, priority
        )
        loop = asyncio.get_running_loop()
        return (await loop_queue(loop).run_on_host(loop, self._open_handle(), request.struct)).to_answer()

    def status(self) -> dict[str, Any]:
        """Return what is served: the content of actual.json, as it is now."""
        status: dict[str, Any] = json.loads(self._ask(self._lib.processor_host_status).to_bytes())
        return status

    def metrics(self) -> str:
        """Return counters and histograms, as text in the exposition format of Prometheus."""
        return self._ask(self._lib.processor_host_metrics).to_bytes().decode()

    def set_endpoint(self, name: str, address: str | None) -> None:
        """Have actual.json tell where the host program listens; None: it does not any more."""
        error = ffi.new("processor_error *")
        c_address = NULL if address is None else c_text("address", address)
        check_error(
            self._lib.processor_host_set_endpoint(self._open_handle(), c_text("name", name), c_address, error), error
        )

    def claim_port(self, address: str, port: int) -> None:
        """Claim a port for the state directory, before anything listens there; until the host is closed.

        Raises
        ------
        AlreadyExistsError
            If a host of another state directory has claimed it; the message names both.
        """
        error = ffi.new("processor_error *")
        check_error(
            self._lib.processor_host_claim_port(self._open_handle(), c_text("address", address), port, error), error
        )

    def prepare_end(self) -> None:
        """Give up what is being loaded, since the process is about to end in order; requests are answered as before.

        Otherwise a process that ends while it loads a version counts as one that died of it.
        """
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_host_prepare_end(self._open_handle(), error), error)

    def drain(self, deadline: float | None = None) -> None:
        """Refuse new requests and wait until the admitted ones have been answered.

        Parameters
        ----------
        deadline : float, optional [s]
            On the clock of `time.monotonic()`; by default it waits without end.

        Raises
        ------
        DeadlineExceededError
            If requests are left by then; the host goes on draining.
        """
        error = ffi.new("processor_error *")
        check_error(self._lib.processor_host_drain(self._open_handle(), deadline_us(deadline), error), error)
