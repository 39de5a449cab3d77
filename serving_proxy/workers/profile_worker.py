# SPDX-License-Identifier: Apache-2.0
"""`python -m serving_proxy.workers.profile_worker JSON`: measure a model for the cost model while hosts serve.

It runs at the lowest priority, or on the maintenance CPUs, measures processor time instead of elapsed time, and ends
with the proxy. Every point is in the file before the next one begins, so that another run continues from there.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cost_model.cpu_time import read_ticks
from serving_proxy.workers.low_priority import lower_priority

_WATCHED_S = 0.3
# The library's canonical code.
_RESOURCE_EXHAUSTED = 8
_EXHAUSTED = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


def main(text: str) -> int:
    """Measure the model that `text` describes; return 0 if it worked, else 1 after a line with the error."""
    asked: dict[str, Any] = json.loads(text)
    lower_priority(asked["cpus"])
    from cost_model.errors import CostModelError
    from cost_model.profiling.measure import profile_model

    out, reuse = Path(asked["out"]), Path(asked["reuse"]) if asked["reuse"] else None
    rows = [int(count) for count in asked["rows"]]
    done = 0

    def progress(step: str) -> None:
        nonlocal done
        print(json.dumps({"step": step, "done": done, "total": len(rows), "unit": "points"}), flush=True)
        done += 1

    _drop_unreadable(out)
    try:
        profile = profile_model(
            Path(asked["model"]),
            [idlest(os.sched_getaffinity(0))],
            rows,
            [1],
            out=out,
            reuse=reuse,
            seconds=float(asked["seconds"]),
            progress=progress,
            beside=True,
        )
        reused = reuse is not None and json.loads(reuse.read_bytes())["points"] == profile.to_json()["points"]
    except CostModelError as error:
        return _fail(str(error))
    except Exception as error:
        # An error of the library, which may not be installed or not load this model; or a full disk, or no memory.
        exhausted = isinstance(error, MemoryError) or getattr(error, "code", 0) == _RESOURCE_EXHAUSTED
        exhausted |= isinstance(error, OSError) and error.errno in _EXHAUSTED
        return _fail(f"{asked['model']}: {type(error).__name__}: {error}", exhausted)
    print(json.dumps({"result": {"reused": reused}}), flush=True)
    return 0


def _drop_unreadable(out: Path) -> None:
    """Remove an unfinished profile that is damaged or from another machine."""
    from cost_model.errors import CostModelError
    from cost_model.profiling.profile import load_profile

    try:
        if out.exists():
            load_profile(out)
    except CostModelError:
        out.unlink()


def idlest(cpus: Iterable[int]) -> int:
    """Return the CPU that is least busy, on which a process that runs in idle time makes progress."""
    before = read_ticks()
    time.sleep(_WATCHED_S)
    now = read_ticks()

    def worked(cpu: int) -> int:
        if cpu not in now or cpu not in before:
            return 0
        # Time of processes that run in idle time is left out, because they give way.
        return (now[cpu].busy - now[cpu].nice) - (before[cpu].busy - before[cpu].nice)

    return min(sorted(cpus), key=worked)


def _fail(message: str, exhausted: bool = False) -> int:
    print(json.dumps({"error": " ".join(message.split()), "exhausted": exhausted}), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
