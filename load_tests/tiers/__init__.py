# SPDX-License-Identifier: Apache-2.0
"""The cases of `bench_tiers`: tables larger than memory."""
