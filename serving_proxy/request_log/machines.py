# SPDX-License-Identifier: Apache-2.0
"""The request logs of machines, whose files only their agents can read: listed, merged and deleted.

The clocks of machines are not compared. So of a merged file, each machine has an equal share of the records, and what
one machine lacks is given to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from serving_proxy.errors import ProxyError
from serving_proxy.records.machine_logs import LogAnswer
from serving_proxy.request_log.files import MOST_BYTES, MOST_RECORDS, frames

Missing = dict[str, ProxyError]
"""Why machines have not answered, by name."""


class MachineLogs(Protocol):
    """Asks the agents of machines; `serving_proxy.fleet.logs` has the details."""

    async def files(self, model: str) -> tuple[dict[str, LogAnswer], Missing]:
        """Return the files of a model by machine."""

    async def delete(self, model: str) -> tuple[dict[str, LogAnswer], Missing]:
        """Remove the files of a model."""

    async def newest(
        self, model: str, records: int, most_bytes: int, use: Callable[[dict[str, Path]], None]
    ) -> Missing:
        """Pass a file with the newest requests of each machine to a function."""


def error_for(missing: Missing) -> ProxyError | None:
    """Return one error for all machines that have not answered, with the status of the first one."""
    found = list(missing.values())
    return type(found[0])("; ".join(map(str, found))) if found else None


def reasons(missing: Missing) -> dict[str, str]:
    """Return why machines have not answered, for views."""
    return {name: str(error) for name, error in missing.items()}


async def newest_of_machines(logs: MachineLogs, model: str, own: list[bytes]) -> tuple[list[bytes], Missing]:
    """Return the newest records of all machines, and why machines have sent none.

    Parameters
    ----------
    logs : MachineLogs
    model : str
    own : list of bytes
        Records of hosts of this machine.
    """
    merged: list[bytes] = []

    def use(sent: dict[str, Path]) -> None:
        sizes = {"": [len(record) for record in own]}
        sizes |= {name: [len(frame) for frame in frames(path)] for name, path in sent.items()}
        for name, count in shared_counts(sizes).items():
            first = len(sizes[name]) - count
            merged.extend(own[first:] if name == "" else _read(sent[name], sizes[name], first))

    missing = await logs.newest(model, MOST_RECORDS, MOST_BYTES, use)
    return merged, missing


def shared_counts(
    sizes: Mapping[str, Sequence[int]], most_records: int = MOST_RECORDS, most_bytes: int = MOST_BYTES
) -> dict[str, int]:
    """Return how many of each machine's newest records are used, neither too many nor too large together.

    Parameters
    ----------
    sizes : mapping of str to sequence of int [byte]
        The records of each machine, the oldest first.
    most_records, most_bytes : int
        Of all machines together; what one machine does not need of its share is given to the others.
    """
    shares = equal_shares({name: len(found) for name, found in sizes.items()}, most_records)
    newest = {name: found[len(found) - shares[name] :] for name, found in sizes.items()}
    counts: dict[str, int] = {}
    for name in sorted(newest, key=lambda name: (sum(newest[name]), name)):
        room = most_bytes // (len(newest) - len(counts))
        counts[name] = sum(size <= room for size in accumulate(reversed(newest[name])))
        most_bytes -= sum(newest[name][len(newest[name]) - counts[name] :])
    return {name: counts[name] for name in sizes}


def equal_shares(there: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many records of each machine are used: equally many, or all that a machine has if these are fewer."""
    shares: dict[str, int] = {}
    left = most
    for count, name in sorted((count, name) for name, count in there.items()):
        shares[name] = min(count, left // (len(there) - len(shares)))
        left -= shares[name]
    return shares


def _read(path: Path, sizes: Sequence[int], first: int) -> Iterator[bytes]:
    """Yield the records of a file from one of them on."""
    with path.open("rb") as file:
        file.seek(sum(sizes[:first]))
        for size in sizes[first:]:
            yield file.read(size)
