# SPDX-License-Identifier: Apache-2.0
"""Verbs on nouns: pure decisions, values in and values out."""
