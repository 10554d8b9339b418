# SPDX-License-Identifier: Apache-2.0
"""The settings of `dra-driver run`: the table of options, and the checked values of these options."""
