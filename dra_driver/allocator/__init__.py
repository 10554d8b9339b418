# SPDX-License-Identifier: Apache-2.0
"""The scheduler's allocation of devices, with the scheduler's answers."""
