# SPDX-License-Identifier: Apache-2.0
"""The plans of libprocessor's ops, which passes make; docs/fused_ops.md explains them."""

from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.plans.tower_plan import TowerPlan

__all__ = ["EmbeddingPlan", "TowerPlan"]
