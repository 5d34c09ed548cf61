package engine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// pathSyntax is the syntax of a field path: names separated by dots. [] after the name of a list means any of its elements.
var pathSyntax = regexp.MustCompile(`^[^],.[]+([[][]])?([.][^],.[]+([[][]])?)*$`)

func isPath(text string) bool { return pathSyntax.MatchString(text) }

func notAPath(text string) string {
	return fmt.Sprintf("has %q, which is not a field path such as spec.nodeName or spec.disks[].name", text)
}

// IndexFields returns the fields of an index of [Read], sorted.
func IndexFields(index string) []string {
	return slices.Sorted(strings.SplitSeq(index, ","))
}

// indexes reports whether objects can be selected by the fields together.
func (r Read) indexes(fields map[string]string) bool {
	wanted := slices.Sorted(maps.Keys(fields))
	return slices.ContainsFunc(r.Indexes, func(index string) bool { return slices.Equal(IndexFields(index), wanted) })
}
