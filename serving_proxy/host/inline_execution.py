# SPDX-License-Identifier: Apache-2.0
"""Find requests that are known to be short, so that they may run on the event loop's own thread.

Handing a request to another thread and waiting for its end costs more than a short request takes. The estimate is a
moving average per kind of request: method, model as in the URL, first field of the bytes, and size rounded to a power
of two. The first field contains the model's name, and in TensorFlow Serving's messages its version and signature; its
bytes are compared, not decoded.
"""

from __future__ import annotations

from processor import Answer
from serving_proxy.host.call import Call, Operation

Kind = tuple[Operation, str | None, bytes, int]

_SHORT_NS = 100_000
# A short request that took this long beyond its run has waited for something: a batch, a session.
_BLOCKED_NS = 1_000_000
_WEIGHT = 0.2
_FIRST_FIELD = 0x0A  # number 1, with a length
_MAX_KINDS = 4096
# Average of a kind whose duration is unbounded: it takes about a hundred requests until it is tried again.
_UNBOUNDED_NS = 1e12
_FIRST_SKIPPED, _MOST_SKIPPED = 100, 100_000


class _Known:
    # `skip`: how many requests do not run inline before the next one may.
    __slots__ = ("average", "next_skip", "skip")

    def __init__(self, first: float) -> None:
        self.average = first
        self.skip = 0
        self.next_skip = _FIRST_SKIPPED


class RequestDurations:
    """Remembers how long requests took. For one thread."""

    def __init__(self, short_ns: int = _SHORT_NS) -> None:
        self._short = short_ns
        self._known: dict[Kind, _Known] = {}

    def is_short(self, kind: Kind) -> bool:
        """Return whether a request of this kind may run on the event loop."""
        known = self._known.get(kind)
        return known is not None and not known.skip and known.average < self._short

    def refuse(self, kind: Kind) -> None:
        """Record that the duration of this kind's next request is unknown."""
        known = self._known.get(kind)
        if known is not None:
            known.average = _UNBOUNDED_NS

    def learn(self, kind: Kind, answer: Answer, *, inline: bool) -> None:
        """Record how long a request took."""
        spent = answer.decode_ns + answer.run_ns + answer.encode_ns
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MAX_KINDS:
                # Clients that send ever new kinds must not fill the memory; the usual kinds are learned again at once.
                self._known.clear()
            known = self._known[kind] = _Known(spent)
        else:
            # On busy CPUs, some short requests are interrupted for milliseconds.
            known.average += _WEIGHT * (min(spent, max(2 * known.average, self._short)) - known.average)
        if not inline:
            known.skip = max(0, known.skip - 1)
        elif answer.total_ns - spent > _BLOCKED_NS:
            known.skip = known.next_skip
            known.next_skip = min(4 * known.next_skip, _MOST_SKIPPED)
        else:
            known.next_skip = max(_FIRST_SKIPPED, known.next_skip - 1)


def kind_of(call: Call) -> Kind:
    """Return a key of requests that are likely to take about the same time."""
    data = call.data
    size = len(data)
    first = b""
    if size > 1 and data[0] == _FIRST_FIELD and data[1] < 0x80:
        first = bytes(data[2 : 2 + data[1]])
    return call.operation, call.model, first, size.bit_length()
