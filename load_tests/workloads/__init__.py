# SPDX-License-Identifier: Apache-2.0
"""Reference models that performance is judged on, exported once and kept in a cache."""

from load_tests.workloads._cache import WORKLOADS, Workload, ensure_model

__all__ = ["WORKLOADS", "Workload", "ensure_model"]
