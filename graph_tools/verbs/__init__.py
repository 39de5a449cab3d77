# SPDX-License-Identifier: Apache-2.0
"""Implement the commands: read, rewrite, write, verify and report."""
