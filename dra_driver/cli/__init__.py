# SPDX-License-Identifier: Apache-2.0
"""Words for people."""
