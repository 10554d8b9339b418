# SPDX-License-Identifier: Apache-2.0
"""The tasks of the driver: which steps each task needs, in which order."""
