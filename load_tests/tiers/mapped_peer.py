# SPDX-License-Identifier: Apache-2.0
"""Serve the mapped model with as much memory as the tiered one has: `python -m load_tests.tiers.mapped_peer`.

The arguments are the model's folder, a memory cgroup and bytes. The process joins the group, loads the model, drops its
pages, and limits the group to what the process takes without them, 128 MB for requests, and those bytes. Then it
answers as `PeerProcess` describes.

The kernel is told not to read around the pages that are missing: by default it reads up to 2 MB, which a table with
scattered rows makes no use of.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import numpy as np

import processor
from load_tests.tiers.clients import MOST_ANSWERS, ModelClient
from load_tests.tiers.cold_start import drop_pages
from load_tests.tiers.memory_cgroup import join, limit_memory
from load_tests.tiers.served_table import BATCH, IDS

__all__ = ["main"]

_RANDOM, _DONTNEED, _NOHUGEPAGE = 1, 4, 15  # of madvise
_REQUEST_BYTES = 128_000_000


def _advise(folder: Path) -> None:
    """Unmap all pages of tables that are mapped from a folder, and ask for single pages from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        place, _, _, _, _, *name = line.split(maxsplit=5)
        if not name or not (name[0].startswith(str(folder)) and name[0].endswith(".emb")):
            continue
        begin, end = (int(text, 16) for text in place.split("-"))
        for advice in (_NOHUGEPAGE, _RANDOM, _DONTNEED):
            if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice) != 0:
                # Kernels without large pages do not know the first.
                assert advice == _NOHUGEPAGE, os.strerror(ctypes.get_errno())
        found += 1
    assert found > 0, f"no table of {folder} is mapped"


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def main(folder: str, group: str, memory: str) -> None:
    """Answer until standard input ends."""
    join(Path(group))
    with processor.Model(folder, {"warmup_runs": 1}) as model:
        _advise(Path(folder).resolve())
        drop_pages(Path(folder))
        own = _anonymous_bytes()
        limit_memory(Path(group), own + _REQUEST_BYTES + int(memory))
        print(json.dumps({"own_bytes": own, "limit_bytes": own + _REQUEST_BYTES + int(memory)}), flush=True)
        client = ModelClient(model)
        for line in sys.stdin:
            file = Path(line.rstrip("\n"))
            requests = np.fromfile(file, np.int64).reshape(-1, BATCH, IDS)
            rate, latencies = client.send(requests)
            if len(requests) < MOST_ANSWERS:
                client.answer(requests).tofile(file.with_suffix(".sums"))
            print(json.dumps({"requests_per_s": rate, "latencies_ms": latencies.tolist()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
