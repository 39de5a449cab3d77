# SPDX-License-Identifier: Apache-2.0
"""Send requests that are small on the wire but large in memory, under a limit of the host's memory."""

from __future__ import annotations

import gzip
import http.client
import json
import resource
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from load_tests.faults.case import Case, Stage
from load_tests.faults.clients import FEATURES, MODEL

__all__ = ["bombs"]

_MANY_INPUTS = "many"
#: Number of simultaneous requests with compressed bodies.
_AT_ONCE = 40
_ROUNDS = 3
#: Byte budget of the host; the memory limit leaves twice as much.
BUDGET_BYTES = 512 << 20


def _post(port: int, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _gzip_bomb(megabytes: int) -> bytes:
    """Return a compressed valid body whose numbers are zeros: about a thousandth of its size."""
    row = b"[0,0,0],"
    return gzip.compress(b'{"instances":[' + row * (megabytes * (1 << 20) // len(row)) + b"[0,0,0]]}", 9)


def _claims(rows: int) -> bytes:
    """Return a PredictRequest with one value per input that represents a whole tensor."""
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = _MANY_INPUTS
    for number in range(FEATURES):
        tensor = request.inputs[f"f{number}"]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add(size=rows)
        tensor.tensor_shape.dim.add(size=1)
        tensor.float_val.append(1.0)
    return bytes(request.SerializeToString())


def _at_once(send: Callable[[], int], count: int) -> Counter[str]:
    """Send the same request from several threads, and count the responses by code or error."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def send_one() -> None:
        try:
            code = str(send())
        except (OSError, http.client.HTTPException) as error:
            code = type(error).__name__
        with lock:
            seen[code] += 1

    threads = [threading.Thread(target=send_one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _limit(pid: int) -> int:
    size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size + 2 * BUDGET_BYTES, size + 2 * BUDGET_BYTES))
    return size


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def bombs(case: Case) -> None:
    """Send such requests from many clients at once; the host must not restart and must serve the other requests."""
    with case.stage(options=["--host-option", f"max-request-mb-in-flight={BUDGET_BYTES >> 20}"]) as stage:
        stage.client.deploy(_MANY_INPUTS, case.models / "many_inputs", version=1, wait=True, timeout=60)
        pid = stage.service.any_host_pid()
        assert pid is not None
        case.found.figures["ready_mb"] = _limit(pid) >> 20
        for name, send in _senders(stage).items():
            with stage.fault():
                for _ in range(_ROUNDS):
                    seen = _at_once(send, _AT_ONCE)
            case.found.figures[name] = dict(seen)
            case.expect(sum(seen.values()) == _AT_ONCE, f"{name}: {sum(seen.values())} answers, expected {_AT_ONCE}")
            now = stage.service.any_host_pid()
            case.expect(now == pid, f"{name}: the host ended")
            if now != pid:
                return
        case.found.figures["peak_resident_mb"] = _peak(pid) >> 20
        stage.works(2)


def _senders(stage: Stage) -> dict[str, Callable[[], int]]:
    rest = stage.service.rest
    bomb, small = _gzip_bomb(60), _gzip_bomb(8)
    packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    path = f"/v1/models/{MODEL}:predict"
    ragged = json.dumps({"instances": [[0, 0, 0]] * 200_000}).encode()
    grpc_path = "/tensorflow.serving.PredictionService/Predict"
    return {
        "gzip_64_kb": lambda: _post(rest, path, bomb, packed),
        "gzip_8_kb": lambda: _post(rest, path, small, packed),
        "many_rows": lambda: _post(rest, path, ragged, {"Content-Type": "application/json"}),
        "claims": lambda: _claim(stage.service.grpc, grpc_path, _claims(16 << 20)),
        "small_claims": lambda: _claim(stage.service.grpc, grpc_path, _claims(1 << 16)),
    }


def _claim(port: int, path: str, request: bytes) -> int:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(path)(request, timeout=60)
        except grpc.RpcError as error:
            return int(error.code().value[0])
    return 0
