# SPDX-License-Identifier: Apache-2.0
"""What the commands do: read, rewrite, write, verify and report."""
