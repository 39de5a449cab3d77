# SPDX-License-Identifier: Apache-2.0
"""What `load_tests.bench_hosts` measures, a file for each subject."""
