// SPDX-License-Identifier: Apache-2.0

// Writes what Go knows of Unicode: the names that a pattern may use, the characters of each class and those that %q
// prints as they are. The pages of surrogates are left out, no text has them.
package main

import (
	"encoding/json"
	"os"
	"regexp"
	"unicode"
)

type ranges [][2]rune

func members(holds func(rune) bool) ranges {
	found := ranges{}
	for character := rune(0); character <= unicode.MaxRune; character++ {
		if 0xD800 <= character && character <= 0xDFFF || !holds(character) {
			continue
		}
		if last := len(found) - 1; last >= 0 && found[last][1] == character-1 {
			found[last][1] = character
		} else {
			found = append(found, [2]rune{character, character})
		}
	}
	return found
}

func main() {
	classes := map[string]ranges{}
	for _, names := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts} {
		for name, table := range names {
			if _, err := regexp.Compile(`\p{` + name + `}`); err == nil {
				classes[name] = members(func(character rune) bool { return unicode.Is(table, character) })
			}
		}
	}
	err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"aliases":   unicode.CategoryAliases,
		"classes":   classes,
		"printable": members(unicode.IsPrint),
	})
	if err != nil {
		panic(err)
	}
}
