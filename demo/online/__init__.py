# SPDX-License-Identifier: Apache-2.0
"""`make demo-online`: a model that learns from a stream while it is served."""
