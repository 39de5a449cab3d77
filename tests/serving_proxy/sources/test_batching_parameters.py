# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from serving_proxy.errors import InvalidError
from serving_proxy.records.models import Batching, Limits
from serving_proxy.sources.batching_parameters import parse_batching


def test_an_empty_file_has_the_defaults_of_tensorflow_serving() -> None:
    found = parse_batching("", "batching.txt")
    assert (found.batching, found.limits, found.notes) == (Batching(mode="zero_wait", max_rows=1000), None, ())
    assert found.config == {}


def test_supported_fields_are_converted() -> None:
    text = """
      max_batch_size { value: 128 }  # rows
      batch_timeout_micros { value: 2500 }
      max_enqueued_batches { value: 100 }
      num_batch_threads { value: 8 }
    """
    found = parse_batching(text, "batching.txt")
    assert found.batching == Batching(mode="timed", max_rows=128, max_wait_us=2500)
    assert found.limits == Limits(max_queue=12_800)
    assert found.config == {"worker_threads": 8}
    assert found.notes == ()


def test_fields_without_a_counterpart_are_reported() -> None:
    text = """
      thread_pool_name { value: "pool" } allowed_batch_sizes: 8 allowed_batch_sizes: 1000
      pad_variable_length_inputs: true enable_large_batch_splitting { value: true }
      max_execution_batch_size { value: 8 }
    """
    found = parse_batching(text, "batching.txt")
    assert found.batching == Batching(mode="zero_wait", max_rows=1000)
    named = ["thread_pool_name", "allowed_batch_sizes", "pad_variable_length_inputs"]
    named += ["enable_large_batch_splitting", "max_execution_batch_size"]
    assert [note.split(" ")[1] for note in found.notes] == named
    assert all(note.startswith("batching.txt: ") and "has no effect: " in note for note in found.notes)


def test_queue_lengths_are_capped_at_the_limit_of_hosts() -> None:
    text = "max_batch_size { value: 16777216 } max_enqueued_batches { value: 16777216 }"
    assert parse_batching(text, "b").limits == Limits(max_queue=16_777_216)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch_sise { value: 1 }", "max_batch_sise"),
        ("max_batch_size: 5", "expected BatchingParameters"),
        ("max_batch_size { value: 0 }", "max_batch_size 0, expected 1 to"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros -1, expected 0 to"),
        ("batch_timeout_micros { value: 10000001 }", "batch_timeout_micros 10000001, expected 0 to 10000000"),
        ("num_batch_threads { value: 0 }", "num_batch_threads 0, expected 1 to 4096"),
        ("max_enqueued_batches { value: 0 }", "max_enqueued_batches 0, expected 1 to"),
        ("{" * 5000, "expected BatchingParameters"),
    ],
)
def test_invalid_values_are_named(text: str, words: str) -> None:
    with pytest.raises(InvalidError, match=words) as caught:
        parse_batching(text, "batching.txt")
    assert str(caught.value).startswith("batching.txt: ")
