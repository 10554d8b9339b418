# SPDX-License-Identifier: Apache-2.0
"""Hardware: what devices exist on this node."""
