// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// celFeatures are the gates that change what an expression sees. Releases before 1.36 do not know all
// of them: the release's own file (release_*.go) leaves out what it has not.
type celFeatures struct {
	EnableConsumableCapacity bool
	EnableListTypeAttributes bool
}

// compile is the door of a release: an expression and the options that all releases share.
type compile func(expression string, options cel.Options) cel.CompilationResult

// compilers keeps one per set of gates: making one takes longer than many an expression.
var compilers = map[celFeatures]compile{}

func compilerFor(features *celFeatures) compile {
	wanted := celFeatures{EnableConsumableCapacity: true, EnableListTypeAttributes: true}
	if features != nil {
		wanted = *features
	}
	if compilers[wanted] == nil {
		compilers[wanted] = newCompiler(wanted)
	}
	return compilers[wanted]
}

// device is what a selector sees of one, in the spelling of the API.
type device struct {
	Driver                   string     `json:"driver"`
	AllowMultipleAllocations *bool      `json:"allowMultipleAllocations"`
	Attributes               attributes `json:"attributes"`
	Capacity                 capacity   `json:"capacity"`
}

// environmentOf is what a selector is compiled in: "" is the default of the release.
type environmentOf struct {
	Env      string       `json:"env"`
	Features *celFeatures `json:"features"`
	// Derived asks for the rules of a derived attribute instead of a selector's.
	Derived bool `json:"derivedAttribute"`
}

func (e environmentOf) options() (cel.Options, error) {
	options := cel.Options{}
	switch kind := environment.Type(e.Env); kind {
	case "":
	case environment.NewExpressions, environment.StoredExpressions:
		options.EnvType = &kind
	default:
		return options, fmt.Errorf("env %q is neither NewExpressions nor StoredExpressions", e.Env)
	}
	if e.Derived {
		return options, askForDerivedAttribute(&options)
	}
	return options, nil
}

type selectorProblem struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
	device
	environmentOf
}

type selectorAnswer struct {
	Name         string  `json:"name"`
	CompileError *string `json:"compileError"`
	Cost         uint64  `json:"cost"`
	Match        bool    `json:"match"`
	MatchError   *string `json:"matchError"`
	// With -details only.
	OutputType string  `json:"outputType,omitempty"`
	ActualCost *uint64 `json:"actualCost,omitempty"`
	// For derived attributes only: the value, as the attribute that the scheduler would see.
	Attribute any `json:"attribute,omitempty"`
}

// decode is strict: a misspelt member would otherwise be a problem that nobody meant.
func decode(line []byte, problem any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	return decoder.Decode(problem)
}

func answerSelector(ctx context.Context, line []byte, details bool) (any, error) {
	var problem selectorProblem
	if err := decode(line, &problem); err != nil {
		return nil, err
	}
	options, err := problem.options()
	if err != nil {
		return nil, err
	}
	compiled := compilerFor(problem.Features)(problem.Expression, options)
	answer := selectorAnswer{Name: problem.Name}
	if compiled.Error != nil {
		text := compiled.Error.Error()
		answer.CompileError = &text
		return answer, nil
	}
	answer.Cost = compiled.MaxCost
	if details {
		answer.OutputType = compiled.OutputType.String()
	}
	if problem.Derived {
		answer.Attribute, err = evaluateDerivedAttribute(ctx, compiled, problem.value())
		answer.MatchError = errorText(ctx, err)
		return answer, nil
	}
	matches, evaluation, err := compiled.DeviceMatches(ctx, problem.value())
	answer.Match, answer.MatchError = matches, errorText(ctx, err)
	if details && evaluation != nil {
		answer.ActualCost = evaluation.ActualCost()
	}
	return answer, nil
}

type selectorBench struct {
	Name       string   `json:"name"`
	Expression string   `json:"expression"`
	Devices    []device `json:"devices"`
	Repeat     int      `json:"repeat"`
	environmentOf
}

// selectorTimes has one entry for each repeat: compiling once, then asking all devices once.
type selectorTimes struct {
	Name         string  `json:"name"`
	CompileError *string `json:"compileError"`
	Devices      int     `json:"devices"`
	Matches      int     `json:"matches"`
	Errors       int     `json:"errors"`
	CompileNs    []int64 `json:"compileNs"`
	MatchNs      []int64 `json:"matchNs"`
}

// benchSelector has no time limit of its own: whoever asks chose the repeats.
func benchSelector(_ context.Context, line []byte, _ bool) (any, error) {
	var problem selectorBench
	if err := decode(line, &problem); err != nil {
		return nil, err
	}
	options, err := problem.options()
	if err != nil {
		return nil, err
	}
	compiler := compilerFor(problem.Features)
	inputs := make([]cel.Device, len(problem.Devices))
	for i, input := range problem.Devices {
		inputs[i] = input.value()
	}
	times := selectorTimes{Name: problem.Name, Devices: len(inputs)}
	for range max(1, problem.Repeat) {
		started := time.Now()
		compiled := compiler(problem.Expression, options)
		times.CompileNs = append(times.CompileNs, time.Since(started).Nanoseconds())
		if compiled.Error != nil {
			text := compiled.Error.Error()
			times.CompileError = &text
			continue
		}
		times.Matches, times.Errors = 0, 0
		started = time.Now()
		for _, input := range inputs {
			matches, _, err := compiled.DeviceMatches(context.Background(), input)
			if err != nil {
				times.Errors++
			} else if matches {
				times.Matches++
			}
		}
		times.MatchNs = append(times.MatchNs, time.Since(started).Nanoseconds())
	}
	return times, nil
}
