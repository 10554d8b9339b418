# SPDX-License-Identifier: Apache-2.0
"""This package allocates devices as the scheduler does: with the same result, or the same error."""
