# SPDX-License-Identifier: Apache-2.0
"""Which claim asks for what a pod asked a device plugin for? Values in, values out; `dra-driver convert` prints them."""
