# SPDX-License-Identifier: Apache-2.0
"""The base of the passes that plan how tables are stored."""

from __future__ import annotations

from graph_tools.model.table_record import TableRecord
from graph_tools.options import CutOptions
from graph_tools.rewriting.protocol import Pass
from graph_tools.tables.analysis import Progress
from graph_tools.tables.plan import TablePlan


class TablePass(Pass):
    """A pass with a plan for each table.

    Attributes
    ----------
    plans : list of TablePlan
        One for each table, also for tables that stay as they are; set by `apply`.
    """

    def __init__(self, options: CutOptions | None = None, progress: Progress | None = None) -> None:
        self.options = options or CutOptions()
        self.progress = progress
        self.plans: list[TablePlan] = []

    @property
    def records(self) -> list[TableRecord]:
        """Return the records of the plans, for the report."""
        return [plan.record() for plan in self.plans]
