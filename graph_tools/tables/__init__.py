# SPDX-License-Identifier: Apache-2.0
"""Sparse tables: their contents, how they are stored in fewer bytes, and the native ops that read them."""
