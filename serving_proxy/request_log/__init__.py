# SPDX-License-Identifier: Apache-2.0
"""The request log: switch it on and off, and find, limit and merge its files."""
