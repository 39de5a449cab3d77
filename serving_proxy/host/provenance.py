# SPDX-License-Identifier: Apache-2.0
"""What an answer says of itself: trailing metadata of gRPC, headers of HTTP."""

from __future__ import annotations

from processor import Answer

Pairs = list[tuple[str, str]]

# What a client may read of an answer, in the order sent.
NAMES = ("x-model-name", "x-model-version", "x-arm", "x-session", "x-cpuset", "x-queue-us", "x-run-us")


def provenance(answer: Answer | None) -> Pairs:
    """Return what is known of who answered, and how long it took; the texts are ASCII."""
    if answer is None:
        return []
    pairs: Pairs = []
    if answer.model_name is not None:
        pairs.append(("x-model-name", answer.model_name))
        if answer.model_version >= 0:
            pairs.append(("x-model-version", str(answer.model_version)))
    if answer.arm is not None:
        pairs.append(("x-arm", answer.arm))
    if answer.session >= 0:
        pairs.append(("x-session", str(answer.session)))
        pairs.append(("x-cpuset", answer.cpuset or ""))
        pairs.append(("x-queue-us", str(answer.queue_ns // 1000)))
        pairs.append(("x-run-us", str(answer.run_ns // 1000)))
    return pairs
