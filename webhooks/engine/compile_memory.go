package engine

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// perNode and perByte are what a compiled policy keeps for each node of its syntax tree, and for each byte of its parameters, as
	// measured: between 85 and 250 bytes for a node.
	perNode, perByte = 256, 64
	// alone is what every policy needs, whatever its text is: most of it for what it remembers.
	alone = 1 << 20
	// MostWeight is what one policy may need, as [Policy.Weight] estimates it.
	MostWeight = 32 << 20
)

// WeightError means that a policy or library would need too much memory.
type WeightError struct {
	Name         string
	Weight, Most int64
}

// Error returns the message with the remedy.
func (e *WeightError) Error() string {
	return fmt.Sprintf("%s needs about %s of memory, but the limit for one policy or library is %s: "+
		"make its modules, imported libraries or parameters smaller, or split it into several policies",
		e.Name, Mebibytes(e.Weight), Mebibytes(e.Most))
}

// Mebibytes formats a number of bytes.
func Mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// weigh estimates the memory of modules and parameters from their text alone, so that every process computes the same value.
func weigh(src Source, modules []*ast.Module) int64 {
	weight := int64(alone) + perByte*int64(len(src.Parameters))
	nodes := int64(0)
	count := ast.NewGenericVisitor(func(any) bool { nodes++; return false })
	for _, m := range modules {
		count.Walk(m)
	}
	for _, m := range src.Modules {
		weight += int64(len(m.Source))
	}
	return weight + perNode*nodes
}

// Weight returns the estimated memory of the compiled policy, in bytes. It depends only on the source.
func (p *Policy) Weight() int64 { return p.weight }
