// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes34 || kubernetes35

package main

import "k8s.io/dynamic-resource-allocation/cel"

// known leaves out the gates that 1.34 and 1.35 do not have.
func known(features celFeatures) cel.Features {
	return cel.Features{EnableConsumableCapacity: features.EnableConsumableCapacity}
}
