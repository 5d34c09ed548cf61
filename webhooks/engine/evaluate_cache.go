package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

const (
	// mostKept limits the results of functions and rules that an evaluation caches, in bytes. Other results are calculated again.
	mostKept = 32 << 20
	// perResult is the size of a cached result, in bytes, without what the calls of builtins and the comprehensions in it made: a few
	// lists and objects. perKey is that of each part of its key. TestResultsThatAreKeptAreBounded measures it.
	perResult, perKey = 1024, 256
)

// results is OPA's cache of the results of one evaluation, with a limit. OPA caches a result for each list of arguments.
type results struct {
	topdown.VirtualCache
	left   int // of mostKept
	frames []int
}

func newResults() *results {
	return &results{VirtualCache: topdown.NewVirtualCache(), left: mostKept}
}

// Put caches a result if there is room for it.
func (r *results) Put(key ast.Ref, value *ast.Term) {
	if size := perResult + perKey*len(key); size <= r.left {
		r.left -= size
		r.VirtualCache.Put(key, value)
	}
}

// Push begins a frame.
func (r *results) Push() {
	r.frames = append(r.frames, r.left)
	r.VirtualCache.Push()
}

// Pop drops the results of a frame.
func (r *results) Pop() {
	last := len(r.frames) - 1
	r.left, r.frames = r.frames[last], r.frames[:last]
	r.VirtualCache.Pop()
}
