# SPDX-License-Identifier: Apache-2.0
"""Export the reference models of benchmarks once and keep them in a cache."""

from load_tests.workloads._cache import WORKLOADS, Workload, ensure_model

__all__ = ["WORKLOADS", "Workload", "ensure_model"]
