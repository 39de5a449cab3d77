# SPDX-License-Identifier: Apache-2.0
"""Cases of `load_tests.bench_elastic`."""
