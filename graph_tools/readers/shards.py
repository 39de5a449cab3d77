# SPDX-License-Identifier: Apache-2.0
"""Find sets of files that are named `<prefix>-00000-of-00003`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from graph_tools.errors import UnreadableError

_SHARD = re.compile(r"^(?P<prefix>.+)-(?P<index>\d{5,})-of-(?P<total>\d{5,})$")


def shard_sets(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Group files by prefix, each group in order and complete; files with other names are ignored.

    Raises
    ------
    UnreadableError
        A shard is missing, or a prefix has shards with two different totals.
    """
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    totals: dict[str, int] = {}
    for path in sorted(paths):
        match = _SHARD.match(path.name)
        if match is None:
            continue
        prefix, index, total = match["prefix"], int(match["index"]), int(match["total"])
        if totals.setdefault(prefix, total) != total:
            raise UnreadableError(f"{path}: one of {total} shards, expected one of {totals[prefix]} as its siblings")
        if index >= total:
            raise UnreadableError(f"{path}: shard {index} of {total}, expected a number below {total}")
        found[prefix][index] = path
    for prefix, shards in found.items():
        total = totals[prefix]
        for index in range(total):
            if index not in shards:
                missing = next(iter(shards.values())).parent / f"{prefix}-{index:05d}-of-{total:05d}"
                raise UnreadableError(f"{missing}: does not exist, expected all {total} shards")
    return {prefix: [shards[index] for index in sorted(shards)] for prefix, shards in found.items()}
