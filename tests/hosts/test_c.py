# SPDX-License-Identifier: Apache-2.0
"""The C examples, built by their own Makefile and run with a real model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import drop_in_config
from helpers.hosts.message_files import frame, unframe
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import INCLUDE, ROOT, require, run, run_ok, write_pkg_config

EXAMPLES = ROOT / "libprocessor" / "examples" / "c"
CONFIG = '{"session_num": 2, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}'


@pytest.fixture(scope="module")
def programs(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs `host` and `drop_in`."""
    require("make", "cc")
    folder = tmp_path_factory.mktemp("c")
    flags = "-O1 -Wall -Wextra -pedantic -Werror"
    variables = [f"PROCESSOR_CFLAGS=-I{INCLUDE}", f"PROCESSOR_LIBDIR={library.parent}", f"CFLAGS={flags}"]
    run_ok(["make", "-C", EXAMPLES, f"OUT={folder}", *variables])
    return folder


def test_host_generates_a_request_and_measures(programs: Path, host_model: Path) -> None:
    options = ["--config", CONFIG, "--threads", 2, "--seconds", 0.5]
    text = run_ok([programs / "host", host_model, "--rows", 3, *options])
    # Every number is 1 and every string "a", so a score is 1 + 2 + 4.
    assert "output y: dtype 1, shape [3], 12 bytes, first value 7\n" in text
    assert "output echo: dtype 7, shape [3], 6 bytes\n" in text
    assert "from 2 threads" in text


def test_host_generates_every_dtype(programs: Path, host_model: Path) -> None:
    text = run_ok([programs / "host", host_model, "--signature", "types", "--rows", 2, "--seconds", 0])
    assert "output float32_out: dtype 1, shape [2, 2], 16 bytes, first value 1\n" in text
    assert "output string_out: dtype 7, shape [2, 2], 4 bytes\n" in text
    assert text.count("output ") == 16


def test_host_prints_figures_as_json(programs: Path, host_model: Path) -> None:
    options = ["--config", CONFIG, "--threads", 2, "--seconds", 0.5, "--json"]
    figures = json.loads(run_ok([programs / "host", host_model, *options]))
    assert figures["threads"] == 2
    assert figures["failed"] == 0
    assert 0.4 < figures["seconds"] < 10
    assert figures["requests_per_second"] == pytest.approx(figures["requests"] / figures["seconds"], rel=0.01)
    latency = figures["latency_us"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= 1.02 * latency["max"]
    # Each thread sends one request after the other: rate times mean latency is the number of threads.
    assert figures["requests_per_second"] * latency["mean"] / 1e6 == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("protocol", ["tfserving", "eas"])
def test_host_answers_requests_as_tensorflow_does(
    protocol: str,
    programs: Path,
    host_model: Path,
    inputs: list[dict[str, Any]],
    stock: Callable[[dict[str, Any]], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    write, read = {
        "tfserving": (tfserving_request, tfserving_outputs),
        "eas": (encode, decode),
    }[protocol]
    requests, output = tmp_path / "requests", tmp_path / "responses"
    requests.write_bytes(frame(write(source) for source in inputs))
    options = ["--protocol", protocol, "--requests", requests, "--output", output]
    text = run_ok([programs / "host", host_model, *options, "--threads", 2, "--seconds", 0.2])
    assert "requests/s" in text
    responses = unframe(output.read_bytes())
    assert len(responses) == len(inputs)
    for row, response in zip(inputs, responses, strict=True):
        assert_same_outputs(read(response), stock(row))


def test_host_answers_a_single_request(
    programs: Path, host_model: Path, inputs: list[dict[str, Any]], tmp_path: Path
) -> None:
    request = tmp_path / "request"
    request.write_bytes(encode(inputs[0]))
    text = run_ok([programs / "host", host_model, "--protocol", "eas", "--request", request, "--seconds", 0])
    assert text.startswith("response 0: ")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "MODEL: missing"),
        (["{model}", "--speed", "9"], 2, "--speed: unknown option"),
        (["{model}", "--threads", "none"], 2, "--threads none: expected a number"),
        (["{model}", "--threads"], 2, "its value is missing"),
        (["{model}", "--output", "x"], 2, "--output: expected with"),
        (["{model}", "--request", "x", "--requests", "x"], 2, "expected one of them"),
        (["/nowhere"], 1, "NOT_FOUND"),
        (["{model}", "--config", '{"sesion_num": 1}'], 1, "sesion_num"),
        (["{model}", "--signature", "absent"], 1, "absent: the model has no such signature"),
        (["{model}", "--request", "/nowhere"], 1, "/nowhere: No such file"),
        (["{model}", "--requests", "{cut}"], 1, "not a list of messages"),
        (["{model}", "--requests", "{empty}"], 1, "not a list of messages"),
        (["{model}", "--request", "{cut}"], 1, "request 0: INVALID_ARGUMENT"),
        (["{model}", "--request", "{empty}", "--protocol", "morse"], 1, "UNIMPLEMENTED"),
        (["{model}", "--request", "{empty}", "--protocol", "eas", "--output", "/nowhere/x"], 1, "/nowhere/x: No such"),
    ],
)
def test_host_reports_errors(
    arguments: list[str], status: int, words: str, programs: Path, host_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "cut").write_bytes(b"\x09\x00\x00\x00abc")
    (tmp_path / "empty").write_bytes(b"")
    places = {"{model}": host_model, "{cut}": tmp_path / "cut", "{empty}": tmp_path / "empty"}
    ended = run([programs / "host", *(places.get(argument, argument) for argument in arguments)])
    assert ended.returncode == status, ended.stderr
    assert words in ended.stderr


def test_host_reports_requests_that_fail_under_load(
    programs: Path, host_model: Path, inputs: list[dict[str, Any]], tmp_path: Path
) -> None:
    # The first answer is right; then 16 threads want into a queue that holds one request.
    requests = tmp_path / "requests"
    requests.write_bytes(frame([encode(inputs[-1])]))
    config = '{"session_num": 1, "execution": "pinned", "max_queue_size": 1}'
    options = ["--protocol", "eas", "--requests", requests, "--config", config, "--threads", 16, "--seconds", 1]
    ended = run([programs / "host", host_model, *options])
    assert ended.returncode == 1
    assert "requests failed, the first with RESOURCE_EXHAUSTED" in ended.stderr


def test_drop_in_answers_as_tensorflow_does(
    programs: Path,
    host_model: Path,
    inputs: list[dict[str, Any]],
    stock: Callable[[dict[str, Any]], dict[str, np.ndarray]],
    tmp_path: Path,
) -> None:
    request, response = tmp_path / "request", tmp_path / "response"
    request.write_bytes(encode(inputs[3]))
    run_ok([programs / "drop_in", json.dumps(drop_in_config(host_model)), request, response])
    assert_same_outputs(decode(response.read_bytes()), stock(inputs[3]))


def test_drop_in_reports_failures(programs: Path, host_model: Path, tmp_path: Path) -> None:
    request = tmp_path / "request"
    request.write_bytes(b"\xff")
    ended = run([programs / "drop_in", json.dumps(drop_in_config(host_model)), request])
    assert ended.returncode == 1
    assert "500: [TensorFlow]" in ended.stderr
    ended = run([programs / "drop_in", json.dumps(drop_in_config(Path("/nowhere"))), request])
    assert ended.returncode == 1
    assert "/nowhere" in ended.stderr
    assert "cannot be loaded" in ended.stderr


def test_makefile_uses_pkg_config(library: Path, tmp_path: Path) -> None:
    require("make", "cc", "pkg-config")
    write_pkg_config(tmp_path)
    run_ok(["make", "-C", EXAMPLES, f"OUT={tmp_path}", f"PKG_CONFIG=env PKG_CONFIG_PATH={tmp_path} pkg-config"])
    assert "usage: host MODEL" in run_ok([tmp_path / "host", "--help"])
