# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from helpers.hosts.contract_messages import make_request
from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import model, served, version
from helpers.system.waiting import wait_until
from processor import FailedPreconditionError
from serving_proxy.host.tracing import chosen_exporter

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, None),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_exporter_is_chosen_by_the_environment(environment: dict[str, str], chosen: str | None) -> None:
    assert chosen_exporter(environment) == chosen


def test_unknown_exporter_is_refused() -> None:
    with pytest.raises(FailedPreconditionError, match="zipkin"):
        chosen_exporter({"OTEL_TRACES_EXPORTER": "zipkin"})


def test_requests_are_spans_below_the_callers(tmp_path: Path, tiny_model: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    models = {"ranking": model(1, {1: version(tiny_model)})}
    with served("python", tmp_path, models, environment=environment) as host:
        url = f"http://{host.rest}/api/predict/ranking"
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        assert httpx.post(url, content=ranking_body(), headers=headers, timeout=60).is_success
        bad = make_request({"x": [1.0]}).SerializeToString()
        assert httpx.post(url, content=bad, headers=headers, timeout=60).status_code == 400
        wait_until(lambda: host.log.read_text().count(f'"trace_id": "0x{TRACE}"') >= 2)
    text = host.log.read_text()
    assert f'"parent_id": "0x{PARENT}"' in text
    assert '"name": "eas/predict"' in text
    assert '"recprocessor.model": "ranking"' in text
    assert '"recprocessor.version": 1' in text
    assert '"status_code": "ERROR"' in text
