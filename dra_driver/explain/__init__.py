# SPDX-License-Identifier: Apache-2.0
"""Why is a pod or claim pending, and what would help? Pure: a value of the cluster goes in, a report comes out."""
