# SPDX-License-Identifier: Apache-2.0
"""How graphs are rewritten: what a pass is, how patterns are matched, and how nodes that are left over go."""
