# SPDX-License-Identifier: Apache-2.0
"""Fakes and failpoints for tests of the driver, for the demo, and for tests of third-party backends; `contract` tests what a backend
promises. Shipped with the driver."""
