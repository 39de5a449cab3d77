# SPDX-License-Identifier: Apache-2.0
"""The machines of a fleet: what their agents report, and the state that each of them is to follow."""
