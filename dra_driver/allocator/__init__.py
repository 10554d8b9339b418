# SPDX-License-Identifier: Apache-2.0
"""Allocates devices as the scheduler does: the same result, or the same error."""
