# SPDX-License-Identifier: Apache-2.0
"""Parses the text of an expression into a tree, and writes a tree as text."""
