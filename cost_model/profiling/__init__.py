# SPDX-License-Identifier: Apache-2.0
"""Measure models on this machine; the only part of the package that runs them."""
