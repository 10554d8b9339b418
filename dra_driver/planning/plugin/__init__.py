# SPDX-License-Identifier: Apache-2.0
"""Decide what the device plugin API offers, and what it answers. These functions have no side effects."""
