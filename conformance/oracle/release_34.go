// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes34 || kubernetes35 || kubernetes36 || kubernetes37

package main

import (
	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Since 1.34 the API is v1, compilers depend on gates and several claims may share a device.

type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
type capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

func newCompiler(features celFeatures) compile {
	return cel.GetCompiler(known(features)).CompileCELExpression
}

func (d device) value() cel.Device {
	return cel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,
		Attributes:               d.Attributes,
		Capacity:                 d.Capacity,
	}
}

func macrosOf(env *celgo.Env) []celgo.Macro {
	return env.Macros()
}

func variablesOf(env *celgo.Env) []*decls.VariableDecl {
	return env.Variables()
}

func validatorsOf(env *celgo.Env) []celgo.ASTValidator {
	return env.Validators()
}
