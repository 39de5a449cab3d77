# SPDX-License-Identifier: Apache-2.0
"""What groups of nodes compute together, whatever framework wrote them."""
