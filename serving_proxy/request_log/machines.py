# SPDX-License-Identifier: Apache-2.0
"""The request logs of machines, whose files only their agents can read: listed, merged and deleted.

The clocks of machines are not compared. So of a merged file, each machine has an equal share of the records, and what
one machine lacks is given to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from serving_proxy.errors import ProxyError
from serving_proxy.records.machine_logs import LogAnswer
from serving_proxy.request_log.files import MOST_BYTES, MOST_RECORDS, LogFile, newest

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
        found = {"": own} | {name: _records(path) for name, path in sent.items()}
        shares = equal_shares({name: len(records) for name, records in found.items()}, MOST_RECORDS)
        most_bytes = MOST_BYTES // max(1, sum(1 for records in found.values() if records))
        for name, records in found.items():
            merged.extend(_last(records, shares[name], most_bytes))

    missing = await logs.newest(model, MOST_RECORDS, MOST_BYTES, use)
    return merged, missing


def equal_shares(there: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many records of each machine are used: equally many, or all that a machine has if these are fewer."""
    shares: dict[str, int] = {}
    left = most
    for count, name in sorted((count, name) for name, count in there.items()):
        shares[name] = min(count, left // (len(there) - len(shares)))
        left -= shares[name]
    return shares


def _records(path: Path) -> list[bytes]:
    return newest([LogFile(path, "", 0, path.stat().st_size)], MOST_RECORDS, MOST_BYTES, [])


def _last(records: list[bytes], count: int, most_bytes: int) -> list[bytes]:
    """Return the last records that are neither too many nor too large together."""
    kept = records[len(records) - count :]
    size = sum(map(len, kept))
    while size > most_bytes and len(kept) > 1:
        size -= len(kept[0])
        kept = kept[1:]
    return kept
