# SPDX-License-Identifier: Apache-2.0
"""What is wrong with manifests? Values in, findings out; `dra-driver check` prints them."""
