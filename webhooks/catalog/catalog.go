package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
)

// Lack is why a policy that compiles cannot be evaluated.
type Lack struct {
	Problem v1alpha1.ConditionReason
	Missing []Grant
	Err     error
}

// Catalog builds sets of policies, and caches compiled policies and the active revisions. The zero value is ready for use.
type Catalog struct {
	// Reads returns why the reads of a policy cannot be answered; nil if they can. It is called for every revision that could
	// become active and must not block. If nil, nothing is lacking.
	Reads func(ctx context.Context, policy string, reads []engine.Read) *Lack

	// Patchable is what policies may patch.
	Patchable grants.Patchable

	// keeps is set if nothing that was compiled is forgotten.
	keeps bool

	mu       sync.Mutex
	outlines memo[engine.Module, *engine.Outline]
	compiled memo[[sha256.Size]byte, *compilation]
	memory   map[string]*compiledRevision // the active editions, by policy name
	last     map[string]types.UID         // the policies of the last set, by name
}

// Build makes the set of active policies and returns the state of each object, by name. It compiles only what changed: a policy
// with its own text, and those that import a library with the library's. good has the stored last good revisions, by policy name.
// The caller must not change objects and revisions afterwards.
func (c *Catalog) Build(ctx context.Context, objects []v1alpha1.RegoPolicy, good map[string]Revision) (*Set, []State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	objects = slices.Clone(objects)
	slices.SortFunc(objects, byObjectName)
	libraries := c.collectLibraries(objects)
	set := &Set{index: resourceIndex{}}
	states := make([]State, len(objects))
	memory, last := map[string]*compiledRevision{}, map[string]types.UID{}
	for i := range objects {
		object := &objects[i]
		if object.Spec.Library {
			states[i] = c.libraryState(object, libraries)
			continue
		}
		v := c.choose(ctx, object, libraries, good)
		states[i] = v.state
		if v.policy != nil {
			set.add(v.policy)
			last[object.Name] = object.UID
		}
		if v.remember != nil {
			memory[object.Name] = v.remember
			c.compiled.put(v.remember.key, v.remember.compilation)
		}
	}
	c.memory, c.last = memory, last
	if !c.keeps {
		c.outlines.turn()
		c.compiled.turn()
	}
	return set, states
}

func stateOf(object *v1alpha1.RegoPolicy) State {
	return State{Name: object.Name, UID: object.UID, Generation: object.Generation, Library: object.Spec.Library}
}

func (c *Catalog) libraryState(object *v1alpha1.RegoPolicy, all libraries) State {
	state := stateOf(object)
	l := all[slices.IndexFunc(all, func(l *library) bool { return l.object == object })]
	b := all.imports(object, l.outlines)
	done := c.compile(&Revision{Policy: bare(object), Libraries: b.libraries})
	state.Text, state.Err, state.Problem = done.text(), done.err, done.problem
	var conflict *conflictError
	switch {
	case errors.As(l.unusable, &conflict):
		state.Err, state.Problem = l.unusable, v1alpha1.ReasonLibraryConflict
	case done.err == nil && l.unusable != nil:
		state.Err, state.Problem = l.unusable, v1alpha1.ReasonContractBroken
	case done.err != nil && len(b.missing) > 0:
		state.Problem, state.Lacking = v1alpha1.ReasonLibraryMissing, b.missing
	}
	return state
}

// compilation is the result of compiling a source.
type compilation struct {
	key     [sha256.Size]byte
	policy  *engine.Policy // nil for libraries
	err     error
	problem v1alpha1.ConditionReason
}

func (c *compilation) text() string { return hex.EncodeToString(c.key[:8]) }

// compile returns the compiled revision, from the cache if it was compiled before.
func (c *Catalog) compile(r *Revision) *compilation {
	var modules []engine.Module
	for i := range r.Libraries {
		modules = append(modules, modulesOf(&r.Libraries[i])...)
	}
	source := sourceOf(&r.Policy, modules)
	text, err := json.Marshal(source)
	if err != nil {
		panic(err) // a Source holds nothing that cannot be marshalled
	}
	key := sha256.Sum256(text)
	if done, ok := c.compiled.get(key); ok {
		return done
	}
	done := &compilation{key: key}
	if done.policy, done.err = source.compile(); done.err != nil {
		done.problem = problemOf(done.err)
	}
	c.compiled.put(key, done)
	return done
}

func problemOf(err error) v1alpha1.ConditionReason {
	var all engine.CompileErrors
	switch {
	case !errors.As(err, &all):
		return v1alpha1.ReasonCompileFailed
	case !slices.ContainsFunc(all, func(e engine.CompileError) bool { return !e.Contract }):
		return v1alpha1.ReasonContractBroken
	case !slices.ContainsFunc(all, func(e engine.CompileError) bool { return !e.Parameters }):
		return v1alpha1.ReasonParametersInvalid
	}
	return v1alpha1.ReasonCompileFailed
}

// recoverPanic turns a panic of the compiler into an error, so that other policies can still be loaded.
func recoverPanic(name string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s cannot be compiled: panic: %v\n%s", name, p, debug.Stack())
	}
}

// memo caches results until the end of the next build: entries that a build did not use are dropped.
type memo[K comparable, V any] struct{ last, now map[K]V }

func (m *memo[K, V]) get(key K) (V, bool) {
	v, ok := m.now[key]
	if !ok {
		if v, ok = m.last[key]; ok {
			m.put(key, v)
		}
	}
	return v, ok
}

func (m *memo[K, V]) put(key K, v V) {
	if m.now == nil {
		m.now = map[K]V{}
	}
	m.now[key] = v
}

func (m *memo[K, V]) turn() { m.last, m.now = m.now, nil }
