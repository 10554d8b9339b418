// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

type declarationsProblem struct {
	Name string `json:"name"`
	environmentOf
}

// overload has its types in the notation of text.
type overload struct {
	ID        string   `json:"id"`
	Member    bool     `json:"member"`
	Arguments []string `json:"arguments"`
	Result    string   `json:"result"`
	// TypeParameters are the names that stand for any type in the two above.
	TypeParameters []string `json:"typeParameters"`
	NonStrict      bool     `json:"nonStrict"`
}

type declarationsAnswer struct {
	Name      string                `json:"name"`
	Functions map[string][]overload `json:"functions"`
	// Identifiers are variables, types and enumeration values, each with its type.
	Identifiers map[string]string `json:"identifiers"`
	// Macros as "name:arguments:target", with * for any number and true if they have a target.
	Macros     []string           `json:"macros"`
	Messages   map[string]message `json:"messages"`
	Libraries  []string           `json:"libraries"`
	Validators []string           `json:"validators"`
	// Flags are cel-go's switches by their numbers, which it does not name in public.
	Flags []int `json:"flags"`
}

// parameters are written <T> by later releases of cel-go and T by earlier ones.
var parameters = strings.NewReplacer("<", "", ">", "")

// text writes a type in CEL's notation: list(T), map(string, dyn), optional_type(V), kubernetes.Quantity.
func text(t *types.Type) string {
	return parameters.Replace(t.String())
}

func overloadsOf(function *decls.FunctionDecl) []overload {
	found := []overload{}
	for _, declared := range function.OverloadDecls() {
		arguments := []string{}
		for _, argument := range declared.ArgTypes() {
			arguments = append(arguments, text(argument))
		}
		parameters := append([]string{}, declared.TypeParams()...)
		sort.Strings(parameters)
		found = append(found, overload{
			ID:             declared.ID(),
			Member:         declared.IsMemberFunction(),
			Arguments:      arguments,
			Result:         text(declared.ResultType()),
			TypeParameters: parameters,
			NonStrict:      declared.IsNonStrict(),
		})
	}
	return found
}

func functionsOf(env *celgo.Env) map[string][]overload {
	found := map[string][]overload{}
	for name, function := range env.Functions() {
		if !function.IsDeclarationDisabled() {
			found[name] = overloadsOf(function)
		}
	}
	return found
}

// message is a type with fields, whether or not an expression can make a value of it.
type message struct {
	// Made is the type of a value that an expression makes of it: NAME{}; "" if none can.
	Made   string            `json:"made"`
	Fields map[string]string `json:"fields"`
}

// hiddenFields are the device's: the provider of types finds them and lists none.
var hiddenFields = []string{"allowMultipleAllocations", "attributes", "capacity", "driver"}

func messageNamed(env *celgo.Env, name string) message {
	provider := env.CELTypeProvider()
	found := message{typeOf(env, name+"{}"), map[string]string{}}
	names := hiddenFields
	if known, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name)); err == nil {
		for i := range known.Descriptor().Fields().Len() {
			names = append(names, string(known.Descriptor().Fields().Get(i).Name()))
		}
	}
	for _, field := range names {
		if declared, ok := provider.FindStructFieldType(name, field); ok {
			found.Fields[field] = text(declared.Type)
		}
	}
	return found
}

// typeOf is the type of an expression, "" if it does not compile.
func typeOf(env *celgo.Env, expression string) string {
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return ""
	}
	return text(checked.OutputType())
}

// protobufNames are the messages and enumeration values that this program has linked in: what an
// expression sees of protobuf is among them.
func protobufNames() (messages, values []string) {
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		messages = append(messages, string(t.Descriptor().FullName()))
		return true
	})
	protoregistry.GlobalTypes.RangeEnums(func(t protoreflect.EnumType) bool {
		for i := range t.Descriptor().Values().Len() {
			enumeration, value := t.Descriptor().FullName(), t.Descriptor().Values().Get(i).Name()
			values = append(values, string(enumeration)+"."+string(value))
		}
		return true
	})
	return messages, values
}

// namesOfTypes are all types that a declaration mentions and the ones that every environment has.
func namesOfTypes(functions map[string][]overload) []string {
	names := map[string]bool{"list": true, "map": true, "null_type": true, "optional_type": true, "type": true}
	for _, overloads := range functions {
		for _, declared := range overloads {
			for _, mentioned := range append(declared.Arguments, declared.Result) {
				names[mentioned] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// identifiersOf are the names that stand for a value or for a type, with the type of what they say.
func identifiersOf(env *celgo.Env, functions map[string][]overload) map[string]string {
	found := map[string]string{}
	messages, values := protobufNames()
	candidates := append(append(namesOfTypes(functions), messages...), values...)
	for _, variable := range variablesOf(env) {
		candidates = append(candidates, variable.Name())
	}
	for _, name := range candidates {
		if strings.ContainsAny(name, "()") { // a type with parameters, which no identifier names
			continue
		}
		if t := typeOf(env, name); t != "" {
			found[name] = t
		}
	}
	return found
}

func messagesOf(env *celgo.Env) map[string]message {
	found := map[string]message{}
	names, _ := protobufNames()
	for _, name := range append(names, deviceType) {
		if _, ok := env.CELTypeProvider().FindStructType(name); ok {
			found[name] = messageNamed(env, name)
		}
	}
	return found
}

// deviceType is the name that all releases give the variable's type.
const deviceType = "kubernetes.DRADevice"

// mayBeFlags is beyond the number of switches that any release of cel-go has.
const mayBeFlags = 32

func answerDeclarations(_ context.Context, line []byte, _ bool) (any, error) {
	var problem declarationsProblem
	if err := decode(line, &problem); err != nil {
		return nil, err
	}
	options, err := problem.options()
	if err != nil {
		return nil, err
	}
	compiled := compilerFor(problem.Features)("true", options)
	if compiled.Error != nil {
		return nil, fmt.Errorf("no environment: %w", compiled.Error)
	}
	env := compiled.Environment
	libraries := append([]string{}, env.Libraries()...)
	sort.Strings(libraries)
	answer := declarationsAnswer{
		Name:        problem.Name,
		Functions:   functionsOf(env),
		Identifiers: identifiersOf(env, functionsOf(env)),
		Macros:      []string{},
		Messages:    messagesOf(env),
		Libraries:   libraries,
		Validators:  []string{},
		Flags:       []int{},
	}
	for _, macro := range macrosOf(env) {
		answer.Macros = append(answer.Macros, macro.MacroKey())
	}
	sort.Strings(answer.Macros)
	for _, validator := range validatorsOf(env) {
		answer.Validators = append(answer.Validators, validator.Name())
	}
	for flag := range mayBeFlags {
		if env.HasFeature(flag) {
			answer.Flags = append(answer.Flags, flag)
		}
	}
	return answer, nil
}
