# SPDX-License-Identifier: Apache-2.0
"""Find the pieces of dense towers, and combine them into one plan."""
