# SPDX-License-Identifier: Apache-2.0
"""The options of the demo of online learning."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Options:
    """Contain the command line's options; `cache` contains files for later runs, `work` those of this run only."""

    root: Path
    cache: Path
    work: Path
    json: Path
    picture: Path
    seconds: float
    share: float
    optimize: bool
