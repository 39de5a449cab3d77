# SPDX-License-Identifier: Apache-2.0
"""Serve the model over the network: the Go gRPC server, with a client of TensorFlow Serving's protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo import wire
from demo.measure import TOLERANCE, ServingError, Timing, closed_loop, in_order, megabytes, run_tool
from demo.workload import MODEL_NAME, TIMED, Workload

METHOD = "/tensorflow.serving.PredictionService/Predict"
START_SECONDS, END_SECONDS = 60.0, 10.0
#: From this version on, Go downloads the newer version that go.mod requires.
_FETCHES_TOOLCHAINS = (1, 21)


def why_not(root: Path) -> str | None:
    """Return why the server cannot be built here, or None if it can."""
    if not shutil.which("go"):
        return "Go is not installed"
    found = _version(run_tool("Go", ["go", "env", "GOVERSION"], cwd="/"))
    needed = _version((root / "libprocessor" / "go" / "go.mod").read_text())
    if found < min(needed, _FETCHES_TOOLCHAINS):
        return f"Go {found[0]}.{found[1]} is installed, {needed[0]}.{needed[1]} is needed"
    return None


def build_host(root: Path, library: Path, target: Path) -> Path:
    """Build cmd/grpc-example against the library as the program `target`, and return that path."""
    folder = library.parent
    environment = os.environ | {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-O2 -I{root / 'libprocessor' / 'include'}",
        "CGO_LDFLAGS": f"-L{folder} -Wl,-rpath,{folder} -Wl,--allow-shlib-undefined",
    }
    command = ["go", "build", "-o", str(target), "./cmd/grpc-example"]
    run_tool("Go build", command, cwd=root / "libprocessor" / "go", env=environment)
    return target


class GoHost:
    """Send serialized requests to the server and wait for each response."""

    name = "libprocessor, Go gRPC"
    short = "Go"
    key = "go_grpc"
    tolerance = TOLERANCE

    def __init__(self, call: Callable[[bytes], bytes], output: str, size: float) -> None:
        self.megabytes = size
        self._call, self._output = call, output

    def scores(self, work: Workload) -> NDArray[np.float32]:
        return in_order(lambda message: wire.decode_response(self._call(message), self._output), work.messages)

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        call, messages = self._call, work.messages[:TIMED]
        return closed_loop(lambda number: call(messages[number]), len(messages), threads, seconds)


@contextmanager
def go_host(program: Path, model: Path, config: Mapping[str, Any], output: str, log: Path) -> Iterator[GoHost]:
    """Start the server on a free loopback port and stop it at the end; its output goes to the file `log`."""
    import grpc

    command = [str(program), "--model", f"{MODEL_NAME}={model}", "--listen", "127.0.0.1:0"]
    command += ["--config", json.dumps(config)]
    with log.open("wb") as errors:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        address = _listening(server, log)
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            yield GoHost(channel.unary_unary(METHOD), output, megabytes(model))
    except grpc.RpcError as error:
        raise ServingError(f"Go gRPC server: {error.code().name}: {error.details()}") from error
    finally:
        _stop(server)


def _listening(server: subprocess.Popen[str], log: Path) -> str:
    """Wait until the server prints its address."""
    timer = threading.Timer(START_SECONDS, server.kill)
    timer.start()
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if found := re.search(r"listening on (\S+)", line):
                return found[1]
    finally:
        timer.cancel()
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise ServingError(f"Go gRPC server: ended with status {server.wait()}, expected it to listen\n{tail}")


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()


def _version(text: str) -> tuple[int, int]:
    """Parse the first "go1.24" or "go 1.24" of a text."""
    found = re.search(r"go ?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
