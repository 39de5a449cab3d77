# SPDX-License-Identifier: Apache-2.0
"""Metadata of a response about itself: trailing metadata of gRPC, headers of HTTP."""

from __future__ import annotations

from processor import Answer

Pairs = list[tuple[str, str]]

# The names that a client may find in a response, in the order in which they are sent.
NAMES = (
    "x-model-name",
    "x-model-version",
    "x-model-epoch",
    "x-model-age-ms",
    "x-arm",
    "x-session",
    "x-cpuset",
    "x-queue-us",
    "x-run-us",
)


def provenance(answer: Answer | None) -> Pairs:
    """Return which model, version and arm produced an answer, and how long it took; the texts are ASCII."""
    if answer is None:
        return []
    pairs: Pairs = []
    if answer.model_name is not None:
        pairs.append(("x-model-name", answer.model_name))
        if answer.model_version >= 0:
            pairs.append(("x-model-version", str(answer.model_version)))
    if answer.epoch >= 0:
        pairs.append(("x-model-epoch", str(answer.epoch)))
        if answer.age_us >= 0:
            pairs.append(("x-model-age-ms", str(answer.age_us // 1000)))
    if answer.arm is not None:
        pairs.append(("x-arm", answer.arm))
    if answer.session >= 0:
        pairs.append(("x-session", str(answer.session)))
        pairs.append(("x-cpuset", answer.cpuset or ""))
        pairs.append(("x-queue-us", str(answer.queue_ns // 1000)))
        pairs.append(("x-run-us", str(answer.run_ns // 1000)))
    return pairs
