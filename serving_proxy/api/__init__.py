# SPDX-License-Identifier: Apache-2.0
"""The admin API: every verb as REST, with an OpenAPI description, a stream of events, metrics and health."""
