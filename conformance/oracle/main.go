// SPDX-License-Identifier: Apache-2.0

// Command oracle answers what one Kubernetes release decides about selectors and claims, from its own
// modules. Each line of the input is a JSON object, each line of the output the answer to it.
//
//	oracle cel              does a selector compile, what does it cost, does it match a device?
//	oracle allocate         which devices do claims get on a node?
//	oracle declarations     which functions, macros, variables and types does an expression see?
//	oracle bench-cel        how long does a selector take, to compile and for each device?
//	oracle bench-allocate   how long does an allocation take?
//
// -details adds what the answers of other implementations need not have, -timeout limits one line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// answerer decodes one line and decides. What it returns is encoded; an error is a line that it could
// not make sense of.
type answerer func(ctx context.Context, line []byte, details bool) (any, error)

var modes = map[string]answerer{
	"cel":          answerSelector,
	"declarations": answerDeclarations,
	"bench-cel":    benchSelector,
}

// refusal answers a line that is no problem at all. It has the error members of all modes, so that
// whoever reads answers of one mode finds one there.
type refusal struct {
	Name         string `json:"name"`
	CompileError string `json:"compileError"`
	Error        string `json:"error"`
}

func refuse(line []byte, cause error) refusal {
	var named struct{ Name string }
	_ = json.Unmarshal(line, &named) // no name is a name as well
	return refusal{named.Name, cause.Error(), cause.Error()}
}

// answer never lets a panic out: the next line may be sound.
func answer(mode answerer, line []byte, limit time.Duration, details bool) (out any) {
	defer func() {
		if cause := recover(); cause != nil {
			if details {
				fmt.Fprintf(os.Stderr, "%v\n%s", cause, debug.Stack())
			}
			out = refuse(line, fmt.Errorf("panic: %v", cause))
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := mode(ctx, line, details)
	if err != nil {
		return refuse(line, fmt.Errorf("malformed problem: %w", err))
	}
	return out
}

// errorText is the error as the answer shows it; nil stands for none.
func errorText(ctx context.Context, err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded) {
		text = "timeout"
	}
	return &text
}

func run(mode answerer, limit time.Duration, details bool) error {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	for {
		line, readErr := input.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(answer(mode, line, limit, details)); err != nil {
				return err
			}
		}
		if readErr != nil || input.Buffered() == 0 { // somebody may wait for this answer
			if err := output.Flush(); err != nil {
				return err
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

func main() {
	flags := flag.NewFlagSet("oracle", flag.ExitOnError)
	limit := flags.Duration("timeout", 10*time.Second, "for one line")
	details := flags.Bool("details", false, "add the actual cost, the output type, the search's steps")
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, "usage: oracle MODE [-details] [-timeout 10s] <problems >answers; MODE is one of")
		for name := range modes {
			fmt.Fprint(os.Stderr, " ", name)
		}
		fmt.Fprintln(os.Stderr)
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // exits by itself
	if err := run(modes[os.Args[1]], *limit, *details); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
