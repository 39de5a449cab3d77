# SPDX-License-Identifier: Apache-2.0
"""Experiments: who gets which variant, and what came of it."""
