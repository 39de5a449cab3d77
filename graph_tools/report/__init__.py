# SPDX-License-Identifier: Apache-2.0
"""Reports: data for programs, as docs/schemas describes it; the terminal's tables are made from the same data."""
