# SPDX-License-Identifier: Apache-2.0
"""Declare the options that `fuse` and `optimize` share: precision, explanations, tables and inputs of the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from graph_tools.options import PRECISIONS, FuseOptions


@dataclass
class FusionOptions:
    """The options that `fuse` and `optimize` share beyond those of `cut`."""

    precision: Annotated[
        str,
        typer.Option(
            metavar="|".join(PRECISIONS),
            help="Precision of dense layers. auto: int8 if recorded requests (--requests) show that it changes little, "
            "else bf16 if no output loses more than 0.001 of AUC or rank correlation, else fp32. A model that was "
            "forced to bf16 does not load on CPUs without bf16.",
        ),
    ] = "auto"
    max_auc_loss: Annotated[
        float,
        typer.Option(
            metavar="LOSS",
            help="Largest loss of AUC of an output for which auto permits int8; for requests without labels, largest "
            "loss of rank correlation.",
        ),
    ] = FuseOptions.max_auc_loss
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            metavar="",
            help="Print each fused op, each site that was not fused with the reason, and the time that the source "
            "spends in parts that were not fused.",
        ),
    ] = False
    table_store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Folder for table files that artifacts share: equal tables are stored once, and artifacts link to "
            "them.",
        ),
    ] = None
    user_inputs: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            show_default=False,
            help="Inputs that describe the user, if the rows of a request are items: the part of the graph that needs "
            "only these is computed once per request. Patterns such as 'user_*' are allowed.",
        ),
    ] = None

    live: Annotated[
        bool,
        typer.Option(
            "--live",
            metavar="",
            help="Let the model follow deltas of a trainer while it is served (docs/delta_format.md). IN must be the "
            "export of the training system, not the result of cut.",
        ),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return these options as arguments of `fuse` and `optimize`."""
        return {
            "precision": self.precision,
            "max_auc_loss": self.max_auc_loss,
            "table_store": self.table_store,
            "user_inputs": tuple(name.strip() for name in (self.user_inputs or "").split(",") if name.strip()),
            "timing": self.explain,
            "live": self.live,
        }

    def render(self, data: dict[str, Any]) -> None:
        """Print the report of a fused model as tables."""
        from graph_tools.cli.render_fuse import render_fuse
        from graph_tools.cli.terminal import console

        render_fuse(data, console(), self.explain)
