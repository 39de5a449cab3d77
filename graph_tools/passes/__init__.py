# SPDX-License-Identifier: Apache-2.0
"""The rewrites of `cut` and `fuse`, one file each."""
