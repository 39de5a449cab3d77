# SPDX-License-Identifier: Apache-2.0
"""Immutable records of models and of hosts."""
