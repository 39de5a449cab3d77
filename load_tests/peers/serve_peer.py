# SPDX-License-Identifier: Apache-2.0
"""Run the requests of W2 with ONNX Runtime or OpenVINO for `bench_serving`. Runs in the peers' environment.

Requests are NumPy arrays before the clock starts and results stay arrays, so that the engine needs no codec. Each
client thread has its own request object; the engine computes each request on one thread, as libprocessor does.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from load_tests.request_files import default_count, random_inputs

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], np.ndarray]


def _onnxruntime(model: str, precision: str, threads: int) -> list[Run]:
    """Return one callable per client thread; they share one session, as ONNX Runtime recommends."""
    import onnxruntime

    if precision != "fp32":
        raise SystemExit("onnxruntime: its CPU provider computes this graph in fp32 only")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [lambda feeds: session.run(None, feeds)[0]] * threads


def _openvino(model: str, precision: str, threads: int) -> list[Run]:
    """Return one callable per client thread, each with its own infer request on its own stream."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        model,
        "CPU",
        {
            # What a model in int8 has besides its quantized layers is fp32.
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "NUM_STREAMS": str(threads),
            "INFERENCE_NUM_THREADS": str(threads),
        },
    )
    requests = [compiled.create_infer_request() for _ in range(threads)]

    def runner(request: Any) -> Run:
        return lambda feeds: np.array(next(iter(request.infer(feeds, share_inputs=True).values())))

    return [runner(request) for request in requests]


def _client(
    run: Run, requests: list[Feeds], first: int, go: threading.Event, end: list[float], found: list[float]
) -> None:
    go.wait()
    index, before = first, time.perf_counter()
    while before < end[0]:
        run(requests[index])
        after = time.perf_counter()
        found.append(after - before)
        before, index = after, (index + 1) % len(requests)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(runs: list[Run], requests: list[Feeds], seconds: float) -> dict[str, float]:
    """Send requests from one thread for each callable, and return the figures of the round."""
    go, end = threading.Event(), [0.0]
    found: list[list[float]] = [[] for _ in runs]
    threads = [
        threading.Thread(target=_client, args=(run, requests, i * len(requests) // len(runs), go, end, found[i]))
        for i, run in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    cpu, begin = _cpu_seconds(), time.perf_counter()
    end[0] = begin + seconds
    go.set()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - begin
    latencies = 1e6 * np.sort(np.concatenate([np.array(times) for times in found]))
    return {
        "seconds": passed,
        "requests": len(latencies),
        "mean_us": float(latencies.mean()),
        "p50_us": float(np.quantile(latencies, 0.5, method="higher")),
        "p99_us": float(np.quantile(latencies, 0.99, method="higher")),
        "max_us": float(latencies[-1]),
        "cpu_seconds": _cpu_seconds() - cpu,
    }


def main() -> None:
    """Respond to lines until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("onnxruntime", "openvino"), required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="fp32")
    parser.add_argument("--rows", type=int, required=True)
    for name in ("model", "workload", "requests", "protocol", "signature"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    # The same values as in the request file, which is generated from the same seed.
    rng = np.random.default_rng([options.rows, *options.workload.encode()])
    requests = [random_inputs(options.workload, options.rows, rng) for _ in range(default_count(options.rows))]
    make = _onnxruntime if options.engine == "onnxruntime" else _openvino
    runs = make(options.model, options.precision, options.threads)
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "ready":
            answer: dict[str, Any] = {}
        elif word == "measure":
            answer = measure(runs, requests, float(value))
        else:
            prob = runs[0](requests[int(value)])
            answer = {"prob": {"shape": list(prob.shape), "values": [float(score) for score in prob.ravel()]}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
