# SPDX-License-Identifier: Apache-2.0
"""Draw measured and predicted p99 against load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from load_tests.cost_model.judging import Verdict

_LINES = {"queue": ("#1f6f8b", "-"), "simulator": ("#c2571a", "--"), "uncalibrated": ("#888888", ":")}


def draw_predictions(verdicts: Sequence[Verdict], path: Path) -> None:
    """Draw a panel for each model of each case: runs as dots, predictions as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((verdict.case, verdict.model) for verdict in verdicts))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.6), squeeze=False)
    for axis, (case, model) in zip(axes[0], panels, strict=True):
        mine = sorted(
            (verdict for verdict in verdicts if (verdict.case, verdict.model) == (case, model)),
            key=lambda verdict: verdict.utilisation,
        )
        loads = [100 * verdict.utilisation for verdict in mine]
        for verdict, load in zip(mine, loads, strict=True):
            axis.plot([load] * len(verdict.p99_ms), verdict.p99_ms, "o", color="black", markersize=4)
        for what, (color, style) in _LINES.items():
            axis.plot(loads, [verdict.predicted[what][1] for verdict in mine], style, color=color, label=what)
        axis.set_title(f"{case}\n{model}", fontsize=9)
        axis.set_xlabel("busy [%]")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("p99 [ms]")
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
