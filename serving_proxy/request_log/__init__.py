# SPDX-License-Identifier: Apache-2.0
"""The request log: switched on and off, its files found, bounded and merged."""
