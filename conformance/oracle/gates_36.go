// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes36 || kubernetes37

package main

import "k8s.io/dynamic-resource-allocation/cel"

// known leaves nothing out since 1.36.
func known(features celFeatures) cel.Features {
	return cel.Features(features)
}
