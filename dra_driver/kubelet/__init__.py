# SPDX-License-Identifier: Apache-2.0
"""The gRPC services that the kubelet calls, and the two calls that the driver makes to the kubelet."""
