# SPDX-License-Identifier: Apache-2.0
"""Objects of the Kubernetes API as the API server writes them.

Field names are the API's in snake_case; in JSON they are camelCase. Unknown fields are ignored. An object with a value of the wrong
type cannot be read. Quantities stay text until they are compared. `kube/wire` converts objects of older versions of
resource.k8s.io to v1.
Source: k8s.io/api v0.37.1, resource/v1/types.go and core/v1/types.go.
"""
