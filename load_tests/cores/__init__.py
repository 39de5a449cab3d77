# SPDX-License-Identifier: Apache-2.0
"""Measure the cost model on this machine: a baseline next to a variant that is overloaded.

    python -m load_tests.cores

docs/benchmarks/cores.md explains it.
"""
