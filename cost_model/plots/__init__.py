# SPDX-License-Identifier: Apache-2.0
"""Draw plans and simulations; matplotlib is imported only here, on first use."""

from __future__ import annotations

from pathlib import Path

from cost_model.errors import UsageError


def check_picture(path: Path) -> None:
    """Check that a picture with this name can be written, before the computation that it will show.

    Raises
    ------
    UsageError
        If the ending of the name is not a known picture format.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise UsageError(f"--plot: '{path}' found, expected a name that ends in one of {', '.join(sorted(kinds))}")


__all__ = ["check_picture"]
