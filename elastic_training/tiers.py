# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a table go that do not fit into memory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from elastic_training._settings import Setting

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
LEAST_MEMORY = 1 << 20
# Names of folders are at most 255 bytes long.
_LONGEST_FOLDER = 200


class TiersSetting(Setting):
    """Where rows are."""

    family: ClassVar[str] = "tiers"


def _bytes(name: str, value: int | str) -> int:
    """Return a size [bytes] that may be written as "8GB"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f'Tiers: {name} is {value!r}, expected bytes, or a text like "8GB" or "500MiB"')
    return int(float(found[1]) * _UNITS[found[2].upper()])


@dataclass(frozen=True, eq=False)
class Tiers(TiersSetting):
    """Keep the rows that training met last in memory, and the others on SSD.

    Parameters
    ----------
    memory : int or str
        Most memory of each table, for example "8GB"; the index and the keys of rows on SSD are in it.
    ssd : path
        A folder; each table has a folder of its own in it, which one process uses at a time.
    ssd_limit : int, str or None
        Most bytes of rows of a table there; beyond it, training ends with an error. None: as the device has room.
    """

    memory: int | str
    ssd: str | os.PathLike[str]
    ssd_limit: int | str | None = None
    kind: ClassVar[str] = "tiers"

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", _bytes("memory", self.memory))
        self._whole("memory", LEAST_MEMORY, 2**60)
        if not isinstance(self.ssd, (str, os.PathLike)) or not os.fspath(self.ssd):
            raise ValueError(f"Tiers: ssd is {self.ssd!r}, expected the path of a folder")
        object.__setattr__(self, "ssd", os.fspath(self.ssd))
        if self.ssd_limit is not None:
            object.__setattr__(self, "ssd_limit", _bytes("ssd_limit", self.ssd_limit))
            self._whole("ssd_limit", LEAST_MEMORY, 2**60)

    def table_fields(self, table: str) -> dict[str, Any]:
        """Return the "tiers" object of a table's JSON."""
        folder = os.path.join(self.ssd, quote(table, safe="")[:_LONGEST_FOLDER])
        fields = {"memory": self.memory, "ssd": folder}
        return fields if self.ssd_limit is None else {**fields, "ssd_limit": self.ssd_limit}
