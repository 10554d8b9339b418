# SPDX-License-Identifier: Apache-2.0
"""Objects of the Kubernetes API as the API server writes them.

Names are the API's own in snake_case; on the wire they are camelCase. Unknown fields are passed over, an object whose
field has the wrong kind of value cannot be built. Quantities stay text until somebody compares them. Older versions of
resource.k8s.io are converted to v1 before they come here.
Source: k8s.io/api v0.37.1, resource/v1/types.go and core/v1/types.go.
"""
