# SPDX-License-Identifier: Apache-2.0
"""The device plugin API: which tasks it needs, in which order."""
