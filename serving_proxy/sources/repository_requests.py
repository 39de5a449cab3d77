# SPDX-License-Identifier: Apache-2.0
"""Requests to load or unload a model, as messages of the Open Inference Protocol and as JSON."""

from __future__ import annotations

import json

from google.protobuf.message import DecodeError

from serving_proxy import messages
from serving_proxy.errors import InvalidError

# Parameters that are accepted. `unload_dependents` has no effect, because no model depends on another.
_KNOWN = {"load": frozenset[str](), "unload": frozenset({"unload_dependents"})}


def parse_message(verb: str, data: bytes) -> str:
    """Read the bytes of a `RepositoryModelLoadRequest` or `RepositoryModelUnloadRequest`; return the model's name.

    Raises
    ------
    InvalidError
        It is not such a message, or requests something that this proxy does not support.
    """
    kind = f"RepositoryModel{verb.title()}Request"
    message = messages.new(f"inference.{kind}")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidError(f"{verb} request: {len(data)} bytes, expected a {kind}") from error
    if message.repository_name:
        raise InvalidError(f"{verb} request: repository '{message.repository_name[:80]}', expected none to be named")
    _check(verb, message.parameters)
    return str(message.model_name)


def parse_body(verb: str, data: bytes) -> None:
    """Check the JSON body of a request whose path names the model; it may be empty."""
    try:
        body = json.loads(data) if data.strip() else {}
        parameters = body.get("parameters", {})
        keys = list(parameters.keys())
    except (ValueError, AttributeError, RecursionError) as error:
        raise InvalidError(f"{verb} request: no JSON object with 'parameters', expected one or nothing") from error
    _check(verb, keys)


def _check(verb: str, keys: object) -> None:
    for key in sorted(set(keys) - _KNOWN[verb]):  # type: ignore[call-overload]
        raise InvalidError(
            f"{verb} request: parameter '{key[:80]}', expected none: a model is configured by `serving-proxy deploy` "
            "or the models.config"
        )
