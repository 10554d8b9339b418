// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes37

package main

import (
	"context"

	"k8s.io/dynamic-resource-allocation/cel"
)

func askForDerivedAttribute(options *cel.Options) error {
	options.DerivedAttribute = true
	return nil
}

func evaluateDerivedAttribute(
	ctx context.Context, compiled cel.CompilationResult, input cel.Device,
) (any, error) {
	attribute, _, err := compiled.EvaluateDerivedAttribute(ctx, input)
	if attribute == nil { // a nil pointer in an interface would not be left out of the answer
		return nil, err
	}
	return attribute, err
}
