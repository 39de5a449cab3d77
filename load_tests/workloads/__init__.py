# SPDX-License-Identifier: Apache-2.0
"""Export the reference models of benchmarks once and keep them in a cache."""

from load_tests.workloads._cache import CACHE, WORKLOADS, Workload, ensure_deepctr_models, ensure_model

__all__ = ["CACHE", "WORKLOADS", "Workload", "ensure_deepctr_models", "ensure_model"]
