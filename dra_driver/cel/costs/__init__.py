# SPDX-License-Identifier: Apache-2.0
"""What would an expression cost at most? The API server refuses one whose estimate exceeds its limit."""
