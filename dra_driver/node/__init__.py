# SPDX-License-Identifier: Apache-2.0
"""The files of this machine: state, CDI files, locks, boot ID, cgroups."""
