# SPDX-License-Identifier: Apache-2.0
"""This machine's files: state, CDI specs, locks, boot id."""
