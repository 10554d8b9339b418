# SPDX-License-Identifier: Apache-2.0
"""Evaluate as the scheduler does, down to its errors and its cost."""
