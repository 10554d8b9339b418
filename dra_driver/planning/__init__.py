# SPDX-License-Identifier: Apache-2.0
"""Decide about claims and slices on this node. These functions have no side effects."""
