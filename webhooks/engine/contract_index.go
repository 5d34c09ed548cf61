package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// pathSyntax is that of the path of a field: names with dots between them. Behind the name of a list, [] stands for any of its elements.
var pathSyntax = regexp.MustCompile(`^[^],.[]+([[][]])?([.][^],.[]+([[][]])?)*$`)

func isPath(text string) bool { return pathSyntax.MatchString(text) }

func notAPath(text string) string {
	return fmt.Sprintf("has %q, which is not the path of a field such as spec.nodeName or spec.disks[].name", text)
}

// IndexFields gives the fields of an index of [Read], in alphabetical order.
func IndexFields(index string) []string {
	return slices.Sorted(strings.SplitSeq(index, ","))
}

// indexes tells whether objects can be looked up by fields together. It is asked at every request.
func (r Read) indexes(fields map[string]string) bool {
	return slices.ContainsFunc(r.Indexes, func(index string) bool {
		found := 0
		for field := range strings.SplitSeq(index, ",") {
			if _, wanted := fields[field]; wanted {
				found++
			}
		}
		return found == len(fields) && found == strings.Count(index, ",")+1
	})
}
