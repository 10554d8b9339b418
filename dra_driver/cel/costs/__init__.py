# SPDX-License-Identifier: Apache-2.0
"""The API server's cost estimate. It refuses an expression whose estimate exceeds the limit."""
