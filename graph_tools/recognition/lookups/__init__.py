# SPDX-License-Identifier: Apache-2.0
"""Find the lookups of a graph that embedding groups may compute, join them, and emit one node for each group."""
