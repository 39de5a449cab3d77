# SPDX-License-Identifier: Apache-2.0
"""Measure models on this machine; no other part of the package runs models."""
