# SPDX-License-Identifier: Apache-2.0
"""The cost model against this machine: traces of real open-loop runs, and what was predicted for them."""
