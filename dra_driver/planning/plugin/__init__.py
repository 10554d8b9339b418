# SPDX-License-Identifier: Apache-2.0
"""Decisions for the device plugin API. Only `dra_driver.services.plugin` imports them, and only where this API is served."""
