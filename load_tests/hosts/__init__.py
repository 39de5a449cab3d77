# SPDX-License-Identifier: Apache-2.0
"""Measure the subjects of `load_tests.bench_hosts`, one module per subject."""
