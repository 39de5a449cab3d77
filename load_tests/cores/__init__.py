# SPDX-License-Identifier: Apache-2.0
"""The cost model at work on this machine: a baseline beside a variant that is driven to overload.

    python -m load_tests.cores

docs/benchmarks/cores.md explains it.
"""
