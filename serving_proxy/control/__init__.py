# SPDX-License-Identifier: Apache-2.0
"""Ties the parts of the control plane together, and shows the whole."""
