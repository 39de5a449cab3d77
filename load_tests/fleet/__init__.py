# SPDX-License-Identifier: Apache-2.0
"""Cases of `bench_fleet`: several machines, which are state directories of this one."""
