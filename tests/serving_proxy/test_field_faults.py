# SPDX-License-Identifier: Apache-2.0
"""What pydantic finds wrong is said in the words of this package, for every field that users write."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError

from helpers.proxies.proxy_runs import ProxyThread
from serving_proxy.api.placement import PlacementBody
from serving_proxy.api.request_log import RequestLogBody
from serving_proxy.api.requests import Body, DeployBody
from serving_proxy.deploy.options import ModelSettings
from serving_proxy.errors import InvalidError
from serving_proxy.field_faults import field_fault, first_fault
from serving_proxy.records.agents import AgentReport
from serving_proxy.serve.options import ServeOptions
from serving_proxy.sources.model_settings import SettingsFile, parse_settings

# What a field may get instead of what it needs; each is right for some fields.
ODD: list[Any] = ["x", "", "x" * 5000, -1, 1 << 80, 2.5, float("inf"), True, None, [], ["x"] * 2000, {}, {"x": "x"}]
WORDS = ("Input should", "should ", "valid ", "Field required", "Extra inputs", "Value error", "unable to")
MODELS = [DeployBody, PlacementBody, RequestLogBody, ModelSettings, SettingsFile, ServeOptions, AgentReport]
MODELS += [model for model in Body.__subclasses__() if model not in MODELS]


def faults(model: type[BaseModel], field: str, value: Any) -> list[str]:
    try:
        model.model_validate({field: value})
    except ValidationError as error:
        return [field_fault(fault) for fault in error.errors()]
    return []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_says_what_was_found_and_what_it_expects(model: type[BaseModel]) -> None:
    said = [text for field in (*model.model_fields, "color") for value in ODD for text in faults(model, field, value)]
    assert said
    assert [text for text in said if any(word in text for word in WORDS)] == []
    assert [text for text in said if " found" not in text or "expected " not in text] == []
    assert max(map(len, said)) < 250


class Sample(BaseModel):
    count: int
    token: str = "t"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"count": "many"}', "count: 'many' found, expected an integer"),
        ('{"count": null}', "count: null found, expected an integer"),
        ("{}", "count: nothing found, expected a value"),
        ("[]", "a list found, expected an object"),
        ('{"count": 1, "token": 5}', "token: a number found, expected a text"),
        ('{"count": ', "no JSON found (EOF while parsing a value at line 1 column 10), expected JSON"),
    ],
)
def test_messages_name_the_field(given: str, expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        Sample.model_validate_json(given)
    assert first_fault(error.value) == expected


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "events?limit=x", "", "limit: 'x' found, expected an integer"),
        ("GET", "events?after=-1", "", "after: '-1' found, expected a number of at least 0"),
        ("GET", "jobs/last", "", "number: 'last' found, expected an integer"),
        ("POST", "models/a/deploy", "{", "body: no JSON found (Expecting property name "),
        ("POST", "models/a/deploy", "[]", "body: a list found, expected an object"),
        ("POST", "models/a/deploy", '{"path": 5}', "path: 5 found, expected a text"),
        ("POST", "models/a/promote", "{}", "version: nothing found, expected a value"),
        ("POST", "login", '{"token": 5}', "token: a number found, expected a text"),
        ("POST", "login", '"TOKEN"', "body: a text found, expected an object"),
    ],
)
def test_requests_are_refused_in_these_words(
    proxy: ProxyThread, method: str, path: str, body: str, expected: str
) -> None:
    headers = {**proxy.headers(), "Content-Type": "application/json"}
    url = f"{proxy.url}/v1/{path}"
    answer = httpx.request(method, url, content=body, headers=headers, trust_env=False, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["message"].startswith(f"request: {expected}")


def test_file_of_settings_is_named() -> None:
    with pytest.raises(InvalidError, match=r"^s\.json: models\.a\.slo_p99_ms: 'x' found, expected a number$"):
        parse_settings('{"models": {"a": {"slo_p99_ms": "x"}}}', "s.json")
