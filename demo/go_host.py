# SPDX-License-Identifier: Apache-2.0
"""Serve the model over the network: the Go host, with a client of TensorFlow Serving's protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
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
    """Build cmd/recprocessor-host against the library as the program `target`, and return that path."""
    folder = library.parent
    environment = os.environ | {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-O2 -I{root / 'libprocessor' / 'include'}",
        "CGO_LDFLAGS": f"-L{folder} -Wl,--allow-shlib-undefined",
    }
    # With the variables and options of `make host-go`, so that no package is compiled again.
    command = ["go", "build", "-trimpath", f"-ldflags=-extldflags=-Wl,-rpath,{folder}"]
    command += ["-o", str(target), "./cmd/recprocessor-host"]
    run_tool("Go build", command, cwd=root / "libprocessor" / "go", env=environment)
    return target


class GoHost:
    """Send serialized requests to the host and wait for each response."""

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
    """Start the host on free loopback ports and stop it at the end; its state directory is beside the file `log`."""
    import grpc

    state = log.with_suffix(".state")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    version = {"path": str(model.resolve()), "config": dict(config)}
    desired = {"schema": 1, "generation": 1, "models": {MODEL_NAME: {"baseline": 1, "versions": {"1": version}}}}
    (state / "desired.json").write_text(json.dumps(desired))
    command = [str(program), "--state-dir", str(state), "--grpc-port", "0", "--rest-port", "0"]
    with log.open("wb") as output_file:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output_file, stderr=output_file)
    try:
        address = _wait_until_listening(server, log)
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            yield GoHost(channel.unary_unary(METHOD), output, megabytes(model))
    except grpc.RpcError as error:
        raise ServingError(f"Go host: {error.code().name}: {error.details()}") from error
    finally:
        _stop(server)


def _wait_until_listening(server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that the host logs when its model is ready."""
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        if found := re.search(r"grpc: listening on ([\w.:]+)", log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise ServingError(f"Go host: status {server.poll()}, expected it to listen\n{tail}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _version(text: str) -> tuple[int, int]:
    """Parse the first "go1.24" or "go 1.24" of a text."""
    found = re.search(r"go ?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
