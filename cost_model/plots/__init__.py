# SPDX-License-Identifier: Apache-2.0
"""Pictures; matplotlib is imported when one is drawn."""
