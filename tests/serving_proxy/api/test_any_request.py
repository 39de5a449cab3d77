# SPDX-License-Identifier: Apache-2.0
"""Requests that schemathesis generates from the OpenAPI description get responses as described."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import ProxyThread, write_model
from serving_proxy import Client

pytestmark = pytest.mark.slow

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
)  # fmt: skip


def test_any_request_is_answered_as_described(proxy: ProxyThread, client: Client, tmp_path: Path) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("schemathesis is not installed, expected it")
        pytest.skip("schemathesis is not installed")
    for number in (3, 4):
        client.deploy("ranking", write_model(tmp_path / "ranking" / str(number)), wait=True)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{proxy.url}/openapi.json", "--seed", "1"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", "8", "--no-color", "--exclude-path", "/v1/stream"]
    # A load waits for hosts, which another generated request may have drained.
    command += ["--exclude-path", "/v1/repository/{verb}"]
    command += [word for name, value in proxy.headers().items() for word in ("--header", f"{name}: {value}")]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]
    client.drain(drain=False)
    # And the proxy is as well as it was.
    assert client.status()["fault"] is None
    client.deploy("after", write_model(tmp_path / "after" / "1"), wait=True)
