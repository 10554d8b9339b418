# SPDX-License-Identifier: Apache-2.0
"""The guard against device plugins of others: what they have given out, or could, is kept from this driver's users."""
