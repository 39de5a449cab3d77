# SPDX-License-Identifier: Apache-2.0
"""The output of `make proto` for the files in serving_proxy/protos."""
