package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

const (
	// mostKept limits the results of functions and rules that an evaluation caches, in bytes. Other results are calculated again.
	mostKept = 32 << 20
	// perKey is the size of a cached result for each part of its key, in bytes. TestResultsThatAreKeptAreBounded measures it.
	perKey = 256
)

// results is OPA's cache of the results of one evaluation, with a limit. OPA caches a result for each list of arguments.
type results struct {
	topdown.VirtualCache
	each   int // bytes of one result, without its key
	left   int // of mostKept
	frames []int
}

func newResults(each int) *results {
	return &results{VirtualCache: topdown.NewVirtualCache(), each: each, left: mostKept}
}

// Put caches a result if there is room for it.
func (r *results) Put(key ast.Ref, value *ast.Term) {
	if size := r.each + perKey*len(key); size <= r.left {
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

// largestResult returns how many bytes a function and its arguments can add to one result, without the results of builtins and
// comprehensions.
func largestResult(c *ast.Compiler) (most int) {
	for _, m := range c.Modules {
		for _, r := range m.Rules {
			bytes := 0
			count := ast.NewGenericVisitor(func(node any) bool {
				switch node := node.(type) {
				case *ast.Expr:
					return node.IsCall() && !node.IsEquality() && ast.BuiltinMap[node.Operator().String()] != nil
				case *ast.Term:
					if built := builtins.Built(node); built > 0 {
						bytes += built
						return true
					}
				}
				return false
			})
			count.Walk(r.Body)
			if len(r.Head.Args) > 0 {
				count.Walk(r.Head.Value)
			}
			most = max(most, bytes)
		}
	}
	return most
}
