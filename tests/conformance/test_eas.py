# SPDX-License-Identifier: Apache-2.0
"""Raw requests of DeepRec Processor over HTTP, as eas-prediction's clients send them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from helpers.hosts.contract_messages import make_request, messages
from helpers.hosts.served_hosts import ServedHost
from helpers.models.model_builders import linear_score

ROOT = Path(__file__).resolve().parents[2]

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
BODY = make_request({"x": X}).SerializeToString()


def _scores(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    response = messages()["PredictResponse"].FromString(answer.content)
    (entry,) = response.outputs
    return np.array(entry.value.float_val, np.float32).reshape(list(entry.value.array_shape.dim))


@pytest.mark.parametrize("path", ["/api/predict/ranking", "/api/predict/ranking/", "/v1/models/ranking:eas"])
def test_predict_returns_scores_and_version(http: httpx.Client, path: str) -> None:
    # What that client sends with every request; the token is for a gateway before the host.
    headers = {"authorization": "token", "content-type": "application/octet-stream"}
    answer = http.post(path, content=BODY, headers=headers)
    assert np.allclose(_scores(answer), linear_score(X))
    assert answer.headers["x-model-version"] == "1"


@pytest.mark.parametrize("place", ["/versions/2", "/labels/canary"])
def test_path_selects_the_version(http: httpx.Client, place: str) -> None:
    assert np.allclose(_scores(http.post(f"/v1/models/ranking{place}:eas", content=BODY)), linear_score(X, 2))


def test_empty_request_returns_the_signature(http: httpx.Client) -> None:
    signature = http.post("/api/predict/ranking", content=b"").json()
    assert [declared["name"] for declared in signature["inputs"]] == ["x"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/predict/absent", BODY, 404),
        ("/api/predict/ranking", b"\xff\xff\xff", 400),
        ("/api/predict/ranking", make_request({"x": X[:, :2]}).SerializeToString(), 400),
        # Five models: one has to be named.
        ("/", BODY, 400),
        ("/api/predict", BODY, 404),
    ],
)
def test_invalid_requests_are_refused(http: httpx.Client, path: str, body: bytes, status: int) -> None:
    answer = http.post(path, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.strip()


def _ask(host: ServedHost, name: str) -> dict[str, Any]:
    """Send a request with eas-prediction's own client."""
    python = ROOT / ".venv-clients" / "bin" / "python"
    if not python.exists():
        message = f"{python}: not there, expected an environment that `make test` makes"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    command = [str(python), str(ROOT / "tests/helpers/hosts/eas_client.py"), host.rest, name, json.dumps(X.tolist())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_client_of_eas_prediction_gets_scores_and_errors(host: ServedHost) -> None:
    answer = _ask(host, "ranking")
    assert np.allclose(np.reshape(answer["values"], answer["shape"]), linear_score(X))
    refused = _ask(host, "absent")
    assert refused["code"] == 404
    assert "absent" in refused["message"]


def test_the_only_model_needs_no_name(start_host, served_models) -> None:
    with start_host({"ranking": served_models["ranking"]}) as host:
        answer = httpx.post(f"http://{host.rest}/", content=BODY, timeout=30)
    assert np.allclose(_scores(answer), linear_score(X))
