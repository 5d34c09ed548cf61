// Package commands writes the commands that messages ask users to run.
package commands

import (
	"strings"

	"al.essio.dev/pkg/shellescape"
)

// Line returns a command line that a POSIX shell splits into exactly these words. Users paste it into a shell, and the words may be
// chosen by somebody else: the name of an object, of a resource or of a user. Characters that a terminal does not print are left out, so
// that the line shows all that it contains.
func Line(words ...string) string {
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = shellescape.Quote(shellescape.StripUnsafe(word))
	}
	return strings.Join(line, " ")
}

// Object returns the words that name an object to kubectl: TYPE/NAME, and its namespace unless it has none.
func Object(resource, namespace, name string) []string {
	words := []string{resource + "/" + name}
	if namespace != "" {
		words = append(words, "-n", namespace)
	}
	return words
}
