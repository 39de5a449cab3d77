# SPDX-License-Identifier: Apache-2.0
"""What holds of a graph in every request: values, shapes, sizes, ranges, rows and who gives them."""
