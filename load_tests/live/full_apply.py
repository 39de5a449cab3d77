# SPDX-License-Identifier: Apache-2.0
"""Apply a timeline to its export with graph-tools, and compare answers with those of the result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from load_tests.live.host import LiveAnswer

__all__ = ["full_apply_faults"]


def full_apply_faults(
    export: Path, timeline: Path, answers: Iterable[LiveAnswer], folder: Path, library: Path | None = None
) -> list[str]:
    """Return how answers differ in any bit from those of a full apply of their epoch.

    Parameters
    ----------
    export : Path
        With which the timeline begins.
    timeline : Path
    answers : iterable of LiveAnswer
    folder : Path
        For the applied models, one for each epoch.
    library : Path, optional
    """
    # What `graph-tools delta apply` does.
    import processor
    from graph_tools import cut

    if library is not None:
        processor.load_library(library)
    faults = []
    for answer in answers:
        target = folder / f"applied-{answer.epoch}"
        cut(export, target, timeline=timeline, last_epoch=answer.epoch, accept_weak_proof=True)
        with processor.Model(target) as model:
            outputs = model.run({"a": answer.keys})
        for name, found in (("rows", answer.rows), ("y", answer.y)):
            if not np.array_equal(found, outputs[name]):
                faults.append(f"epoch {answer.epoch}: {name} differs from the full apply")
    return faults
