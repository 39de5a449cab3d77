# SPDX-License-Identifier: Apache-2.0
"""The pieces of dense towers, and how they become one plan."""
