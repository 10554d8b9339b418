# SPDX-License-Identifier: Apache-2.0
"""Generated from protos/ by hack/generate-protos; never edited."""
