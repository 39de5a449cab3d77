# SPDX-License-Identifier: Apache-2.0
"""The plans of libprocessor's ops, as passes make them; docs/fused_ops.md says what they mean."""

from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.plans.tower_plan import TowerPlan

__all__ = ["EmbeddingPlan", "TowerPlan"]
