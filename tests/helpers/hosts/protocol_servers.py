# SPDX-License-Identifier: Apache-2.0
"""Pass the bytes of real clients to a function: small gRPC and HTTP servers on 127.0.0.1."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

import processor

# (service, method, request) -> response
Answer = Callable[[str, str, bytes], bytes]
# (method and path, headers, body) -> (headers, body)
HttpAnswer = Callable[[str, Mapping[str, str], bytes], tuple[dict[str, str], bytes]]


class _AnyMethod(grpc.GenericRpcHandler):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        _, service, method = handler_call_details.method.split("/")

        def run(request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                return self._answer(service, method, request)
            except processor.ProcessorError as error:
                code = {code.value[0]: code for code in grpc.StatusCode}[int(error.code)]
                return context.abort(code, str(error))

        return grpc.unary_unary_rpc_method_handler(run)


@contextmanager
def grpc_server(answer: Answer) -> Iterator[str]:
    """Serve every unary method with `answer`; yield "127.0.0.1:port"."""
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[_AnyMethod(answer)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextmanager
def http_server(answer: HttpAnswer) -> Iterator[str]:
    """Serve GET and POST with `answer`, failures as 400 with a JSON error; yield "127.0.0.1:port"."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                headers, data = answer(f"{self.command} {self.path}", self.headers, body)
                self.send_response(200)
            except processor.ProcessorError as error:
                headers, data = {}, json.dumps({"error": str(error)}).encode()
                self.send_response(400)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
