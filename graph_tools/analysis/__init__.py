# SPDX-License-Identifier: Apache-2.0
"""Analyses of properties that hold in every request: values, shapes, sizes, ranges, and rows of users and items."""
