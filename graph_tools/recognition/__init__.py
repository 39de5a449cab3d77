# SPDX-License-Identifier: Apache-2.0
"""Recognize what groups of nodes compute together, in the forms that different frameworks write."""
