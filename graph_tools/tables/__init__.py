# SPDX-License-Identifier: Apache-2.0
"""Sparse tables: what they hold, how they are stored smaller, and the native ops that read them."""
