# SPDX-License-Identifier: Apache-2.0
"""Nouns: frozen, validated values without behaviour beyond their own arithmetic."""
