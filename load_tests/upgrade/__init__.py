# SPDX-License-Identifier: Apache-2.0
"""Upgrade a fleet from an earlier commit under load, and go back."""
