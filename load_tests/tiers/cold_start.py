# SPDX-License-Identifier: Apache-2.0
"""Load a tiered model whose files are not in the page cache, and answer a request.

Prints the time from the beginning of the load to the answer [s], and what the model says of its tables then, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import processor
from load_tests.tiers.served_table import BATCH, IDS, Zipf

__all__ = ["drop_pages", "main"]


def drop_pages(folder: Path) -> None:
    """Let the page cache drop all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main(folder: str, config: str, rows: str) -> None:
    """Measure a folder, with a configuration of the model as JSON and the number of rows of its table."""
    drop_pages(Path(folder))
    (ids,) = Zipf(int(rows)).draw(np.random.default_rng(5), 1)
    assert ids.shape == (BATCH, IDS)
    begun = time.monotonic()
    with processor.Model(folder, json.loads(config)) as model:
        loaded = time.monotonic()
        model.run({"ids": ids})
        answered = time.monotonic()
        tables = model.info["tables"]
    print(json.dumps({"load_s": loaded - begun, "first_answer_s": answered - begun, "tables": tables}))


if __name__ == "__main__":
    main(*sys.argv[1:])
