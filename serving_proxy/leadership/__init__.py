# SPDX-License-Identifier: Apache-2.0
"""Which of several proxies leads, and the copies of its state that the others keep."""
