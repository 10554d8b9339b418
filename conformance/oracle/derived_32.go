// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes37

package main

import (
	"context"
	"errors"

	"k8s.io/dynamic-resource-allocation/cel"
)

var errNoDerivedAttributes = errors.New("releases before 1.37 have no derived attributes")

func askForDerivedAttribute(*cel.Options) error {
	return errNoDerivedAttributes
}

func evaluateDerivedAttribute(context.Context, cel.CompilationResult, cel.Device) (any, error) {
	return nil, errNoDerivedAttributes
}
