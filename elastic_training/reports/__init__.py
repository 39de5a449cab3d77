# SPDX-License-Identifier: Apache-2.0
"""What tables learn, and what settings would cost."""
