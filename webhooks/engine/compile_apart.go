package engine

import (
	"strings"
	"sync/atomic"
)

// mostCopied limits what OPA's parser may copy of a text in this process, in bytes: it is reached by a line of 16 KiB, or by 120 KiB in
// lines of 2 KiB.
const mostCopied = (16 << 10) * (16 << 10)

// copied returns how many bytes OPA's parser may copy of a text. Each of its errors has a copy of its line, and a line can have an error at
// each character: 120 KB of template strings that do not end took 5 GB. For equal keys in the YAML of annotations, which are in comments of
// consecutive lines, it has an error with a line for each pair.
func copied(text string) (sum int) {
	comments := 0
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "#") {
			comments += len(line)
			continue
		}
		sum += len(line)*len(line) + comments*comments
		comments = 0
	}
	return sum + comments*comments
}

// apart parses a module in another process, with limited memory, and returns its errors; nil if this process may parse everything.
var apart atomic.Pointer[func(Module) error]

// ParseApart has modules of which OPA's parser may make many copies parsed by another process first; only what that parses without an
// error is parsed in this one. Check returns the errors, [CompileErrors] if they have places. Nil ends this.
func ParseApart(check func(Module) error) {
	if check == nil {
		apart.Store(nil)
		return
	}
	apart.Store(&check)
}

// parsesApart returns what the other process finds in a module that this one must not parse before, or nil.
func parsesApart(m Module) error {
	check := apart.Load()
	if check == nil || copied(m.Source) <= mostCopied {
		return nil
	}
	return (*check)(m)
}
