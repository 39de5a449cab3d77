# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's `BatchingParameters`, the text file of its `--batching_parameters_file`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

from serving_proxy import messages
from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Batching, Limits

# TensorFlow Serving's defaults for parameters that the file does not set.
_DEFAULT_ROWS, _DEFAULT_WAIT_US = 1000, 0
_MOST_ROWS, _MOST_WAIT_US, _MOST_QUEUE, _MOST_THREADS = 2**24, 10_000_000, 16_777_216, 4096
_INEFFECTIVE = {
    "thread_pool_name": "models do not share a thread pool",
    "allowed_batch_sizes": "batches are not padded to a size",
    "pad_variable_length_inputs": "requests whose other dimensions differ are not batched together",
    "enable_large_batch_splitting": "a request with more rows than max_batch_size runs alone",
    "max_execution_batch_size": "requests are not split",
}


@dataclass(frozen=True)
class BatchingParameters:
    """The content of such a file.

    Attributes
    ----------
    limits : Limits or None
        None: the file does not limit the queue.
    config : dict
        Keys of a model's configuration.
    notes : tuple of str
        Sentences about parameters that have no effect here.
    """

    batching: Batching
    limits: Limits | None
    config: dict[str, Any]
    notes: tuple[str, ...]


def parse_batching(text: str, named: str) -> BatchingParameters:
    """Read the text of such a file.

    Raises
    ------
    InvalidError
        It is not a `BatchingParameters`, or a value is out of range.
    """
    message = messages.new("tensorflow.serving.BatchingParameters")
    try:
        text_format.Parse(text, message, descriptor_pool=message.DESCRIPTOR.file.pool)
    except (text_format.ParseError, RecursionError) as error:
        raise InvalidError(f"{named}: {error}, expected BatchingParameters") from error
    rows = _value(message, "max_batch_size", _DEFAULT_ROWS, (1, _MOST_ROWS), named)
    wait = _value(message, "batch_timeout_micros", _DEFAULT_WAIT_US, (0, _MOST_WAIT_US), named)
    limits = None
    if message.HasField("max_enqueued_batches"):
        batches = _value(message, "max_enqueued_batches", 0, (1, _MOST_QUEUE), named)
        # This library's queue contains requests, each of which has at least one row.
        limits = Limits(max_queue=min(batches * rows, _MOST_QUEUE))
    config = {}
    if message.HasField("num_batch_threads"):
        # In TensorFlow Serving, all models share these threads; here, they are the maximum for each model.
        config["worker_threads"] = _value(message, "num_batch_threads", 1, (1, _MOST_THREADS), named)
    notes = tuple(
        f"{named}: {field.name} has no effect: {_INEFFECTIVE[field.name]}"
        for field, _ in message.ListFields()
        if field.name in _INEFFECTIVE
    )
    batching = Batching(mode="zero_wait", max_rows=rows)
    if wait > 0:
        batching = Batching(mode="timed", max_rows=rows, max_wait_us=wait)
    return BatchingParameters(batching, limits, config, notes)


def _value(message: Any, field: str, default: int, bounds: tuple[int, int], named: str) -> int:
    found = int(getattr(message, field).value) if message.HasField(field) else default
    low, high = bounds
    if not low <= found <= high:
        raise InvalidError(f"{named}: {field} {found}, expected {low} to {high}")
    return found
