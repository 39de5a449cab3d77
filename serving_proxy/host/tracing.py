# SPDX-License-Identifier: Apache-2.0
"""A span for every request, if OpenTelemetry is installed and its own variables name a destination."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from processor import Answer, FailedPreconditionError, Host, ProcessorError
from serving_proxy.host.call import TRACE, Call
from serving_proxy.host.engine import Engine
from serving_proxy.host.inline_execution import Kind

_EXPORTER = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def make_engine(host: Host) -> Engine:
    """Return the engine that runs calls, with tracing if that is configured."""
    exporter = chosen_exporter(os.environ)
    return Engine(host) if exporter is None else TracedEngine(host, exporter)


def chosen_exporter(environment: Mapping[str, str]) -> str | None:
    """Return "otlp" or "console"; None if spans are not exported.

    Raises
    ------
    FailedPreconditionError
        For an unknown exporter.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    named = environment.get(_EXPORTER) or ("otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none")
    if named not in {"none", "otlp", "console"}:
        raise FailedPreconditionError(f"{_EXPORTER}: '{named}', expected otlp, console or none")
    return None if named == "none" else named


class TracedEngine(Engine):
    """Records each call once it has ended."""

    def __init__(self, host: Host, exporter: str) -> None:
        super().__init__(host)
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise FailedPreconditionError(f"{error.name}: not installed, expected recprocessor[otel]") from error
        self._trace = trace
        self._provider = TracerProvider()
        self._provider.add_span_processor(BatchSpanProcessor(_make_exporter(exporter)))
        self._tracer = self._provider.get_tracer("serving_proxy.host")
        self._propagator = TraceContextTextMapPropagator()

    def answer_now(self, call: Call, kind: Kind) -> Answer | None:
        """Run and record a call that is known to be short."""
        began = time.time_ns()
        try:
            answer = super().answer_now(call, kind)
        except ProcessorError as error:
            self._record(call, began, error.answer, error)
            raise
        if answer is not None:
            self._record(call, began, answer)
        return answer

    async def answer_later(self, call: Call, kind: Kind) -> Answer:
        """Run and record a call; a cancelled call leaves no span."""
        began = time.time_ns()
        try:
            answer = await super().answer_later(call, kind)
        except ProcessorError as error:
            self._record(call, began, error.answer, error)
            raise
        self._record(call, began, answer)
        return answer

    def close(self) -> None:
        """Send the spans that have not been sent yet."""
        self._provider.shutdown()

    def _record(self, call: Call, began: int, answer: Answer | None, error: ProcessorError | None = None) -> None:
        parent = (call.metadata or {}).get(TRACE)
        if isinstance(parent, bytes):
            parent = parent.decode("latin-1")
        span = self._tracer.start_span(
            f"{call.operation.protocol}/{call.operation.method}",
            context=None if parent is None else self._propagator.extract({TRACE: parent}),
            kind=self._trace.SpanKind.SERVER,
            attributes=_attributes(call, answer),
            start_time=began,
        )
        if error is not None:
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()


def _make_exporter(name: str) -> Any:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    try:
        if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise FailedPreconditionError(f"{error.name}: not installed, expected an OTLP exporter") from error
    return OTLPSpanExporter()


def _attributes(call: Call, answer: Answer | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "rpc.system": call.operation.protocol,
        "rpc.method": call.operation.method,
        "recprocessor.request_bytes": len(call.data),
    }
    if answer is not None:
        known = {
            "model": answer.model_name,
            "version": answer.model_version if answer.model_version >= 0 else None,
            "arm": answer.arm,
            "session": answer.session if answer.session >= 0 else None,
            "queue_us": answer.queue_ns // 1000,
            "run_us": answer.run_ns // 1000,
            "batch_rows": answer.batch_rows,
        }
        attributes |= {f"recprocessor.{name}": value for name, value in known.items() if value is not None}
    return attributes
