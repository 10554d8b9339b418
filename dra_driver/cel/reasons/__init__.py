# SPDX-License-Identifier: Apache-2.0
"""Finds the conditions of a selector that are false for a device, and what the author may have meant."""
