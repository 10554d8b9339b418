# SPDX-License-Identifier: Apache-2.0
"""Fakes and fault injection that ship with the driver, for its tests, its demo and for writers of backends."""
