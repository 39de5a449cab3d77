# SPDX-License-Identifier: Apache-2.0
"""Compare the cost model with this machine: traces of real open-loop runs and the predictions for them."""
