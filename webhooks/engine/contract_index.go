package engine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// pathSyntax is that of the path of a field: names with dots between them. Behind the name of a list, [] stands for any of its elements.
var pathSyntax = regexp.MustCompile(`^[^],.[]+([[][]])?([.][^],.[]+([[][]])?)*$`)

func isPath(text string) bool { return pathSyntax.MatchString(text) }

func notAPath(text string) string {
	return fmt.Sprintf("has %q, which is not a field path such as spec.nodeName or spec.disks[].name", text)
}

// IndexFields gives the fields of an index of [Read], in alphabetical order.
func IndexFields(index string) []string {
	return slices.Sorted(strings.SplitSeq(index, ","))
}

// indexes tells whether objects can be looked up by fields together.
func (r Read) indexes(fields map[string]string) bool {
	wanted := slices.Sorted(maps.Keys(fields))
	return slices.ContainsFunc(r.Indexes, func(index string) bool { return slices.Equal(IndexFields(index), wanted) })
}
