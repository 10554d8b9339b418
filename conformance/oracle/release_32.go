// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes32 || kubernetes33

package main

import (
	"reflect"
	"unsafe"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// 1.32 and 1.33 know no gate and no device that several claims share.

type attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
type capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity

func newCompiler(celFeatures) compile {
	return cel.GetCompiler().CompileCELExpression
}

func (d device) value() cel.Device {
	return cel.Device{Driver: d.Driver, Attributes: d.Attributes, Capacity: d.Capacity}
}

// hidden reads a member of an environment that its package keeps for itself; later ones have a method.
func hidden[T any](env *celgo.Env, name string) T {
	member := reflect.ValueOf(env).Elem().FieldByName(name)
	return *(*T)(unsafe.Pointer(member.UnsafeAddr()))
}

func macrosOf(env *celgo.Env) []celgo.Macro {
	return hidden[[]celgo.Macro](env, "macros")
}

func variablesOf(env *celgo.Env) []*decls.VariableDecl {
	return hidden[[]*decls.VariableDecl](env, "variables")
}

func validatorsOf(env *celgo.Env) []celgo.ASTValidator {
	return hidden[[]celgo.ASTValidator](env, "validators")
}
