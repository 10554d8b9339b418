# SPDX-License-Identifier: Apache-2.0
"""The values that pass between rooms: frozen, validated, and without behaviour except their own arithmetic."""
