# SPDX-License-Identifier: Apache-2.0
"""What `make proto` writes from the files in serving_proxy/protos."""
