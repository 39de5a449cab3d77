# SPDX-License-Identifier: Apache-2.0
"""The rewrites that `cut` makes, one file each."""
