# SPDX-License-Identifier: Apache-2.0
"""Which series does a scrape have of devices and claims? Tables of names, and functions from what was sampled to series."""
