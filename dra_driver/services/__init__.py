# SPDX-License-Identifier: Apache-2.0
"""Use cases: in which order things happen."""
