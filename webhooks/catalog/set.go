package catalog

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the schema of input
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
)

// inputSchema has every field of the input of policies, so that a misspelled one does not compile. It does not describe the objects
// in the input.
//
//go:embed request_schema.json
var inputSchema []byte

// Policy is a RegoPolicy in a set: compiled, or broken.
type Policy struct {
	*engine.Policy // nil if it is broken
	// Mode is the mode for cluster-scoped requests, and for namespaces that no entry of spec.namespaceModes selects: see
	// [Selected]. Mode, OnError and Override have their defaults filled in.
	Mode     v1alpha1.PolicyMode
	OnError  v1alpha1.PolicyErrorAction
	Override v1alpha1.PolicyOverride

	failure v1alpha1.PolicyFailureAction

	name   string
	uid    types.UID
	match  matcher
	regime regime
	reads  []engine.Read
	err    *engine.Error // why it is broken

	patchable grants.Patchable
}

// Name returns the name of the RegoPolicy.
func (p *Policy) Name() string { return p.name }

// UID returns the UID of the RegoPolicy; "" if it is not from a cluster.
func (p *Policy) UID() types.UID { return p.uid }

// Revision identifies what the policy was compiled from; "" if it is broken.
func (p *Policy) Revision() string {
	if p.Broken() != nil {
		return ""
	}
	return p.Policy.Revision()
}

// Broken returns why the policy cannot be evaluated, so that requests follow its OnError; nil if it can.
func (p *Policy) Broken() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

// Validates reports whether the policy is evaluated on the validating endpoint. A broken one fails there.
func (p *Policy) Validates() bool { return p.Broken() != nil || p.Policy.Validates() }

// Mutates reports whether the policy has patch rules. A broken policy has none, so that it denies a request only once.
func (p *Policy) Mutates() bool { return p.Broken() == nil && p.Policy.Mutates() }

// Reads returns every kind, with its indexes, that decisions read.
func (p *Policy) Reads() []engine.Read { return slices.Clone(p.reads) }

// Set is the active policies at one time. It is immutable; every change makes a new set.
type Set struct {
	policies []*Policy
	index    resourceIndex
	reads    []engine.Read
}

// Compile makes a set of RegoPolicies, all of which must be valid. The error joins those of all policies.
func Compile(objects []v1alpha1.RegoPolicy) (*Set, error) {
	return new(Sets).Compile(objects, grants.Patchable{})
}

// Sets makes independent sets, and compiles policies that sets have in common only once. It keeps all that it has compiled. The zero
// value is ready for use.
type Sets struct {
	mu       sync.Mutex
	outlines memo[engine.Module, *engine.Outline]
	compiled memo[[sha256.Size]byte, *compilation]
}

// Compile is the function Compile for policies that may patch what is given.
func (s *Sets) Compile(objects []v1alpha1.RegoPolicy, patchable grants.Patchable) (*Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Catalog{Patchable: patchable, keeps: true, outlines: s.outlines, compiled: s.compiled}
	set, states := c.Build(context.Background(), objects, nil)
	s.outlines, s.compiled = c.outlines, c.compiled
	errs := make([]error, len(states))
	for i := range states {
		errs[i] = states[i].Err
	}
	return set, errors.Join(errs...)
}

// Policies returns the policies by name.
func (s *Set) Policies() []*Policy { return slices.Clone(s.policies) }

// Policy returns the policy of that name, or nil.
func (s *Set) Policy(name string) *Policy {
	for _, p := range s.policies {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// Reads returns every kind, with its indexes, that the set needs caches of, except those of broken policies.
func (s *Set) Reads() []engine.Read { return slices.Clone(s.reads) }

// Hash identifies the active revisions, their matches and their enforcement. Replicas with the same hash make the same decisions.
func (s *Set) Hash() string {
	type modes struct {
		Mode       v1alpha1.PolicyMode
		Namespaces []v1alpha1.NamespaceMode
	}
	type part struct {
		Name, Revision string
		Modes          modes
		OnError        v1alpha1.PolicyErrorAction
		FailurePolicy  v1alpha1.PolicyFailureAction
		Override       v1alpha1.PolicyOverride
		Match          *v1alpha1.PolicyMatch
		Patchable      grants.Kinds `json:",omitempty"`
	}
	parts := make([]part, len(s.policies))
	for i, p := range s.policies {
		parts[i] = part{
			Name: p.name, Revision: p.Revision(), Modes: modes{p.regime.mode, p.regime.spec}, OnError: p.OnError, FailurePolicy: p.failure, Override: p.Override,
			Match: p.match.PolicyMatch,
		}
		if p.Mutates() {
			parts[i].Patchable = p.patchable.Kinds
		}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // it can always be marshalled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

func (s *Set) add(p *Policy) {
	s.policies = append(s.policies, p)
	slices.SortFunc(s.policies, byName)
	s.index.add(p)
	if p.Broken() == nil {
		s.reads = append(s.reads, p.reads...)
	}
}

func byName(a, b *Policy) int { return strings.Compare(a.Name(), b.Name()) }

// Source is a RegoPolicy as the engine compiles it.
type Source struct {
	engine.Source
	// Library reports whether it is a library.
	Library bool
	// ParametersSchema is the schema of the parameters; empty means any.
	ParametersSchema []byte
	object           *v1alpha1.RegoPolicy
}

// Sources converts RegoPolicies; each has all libraries to import from. Modules are named <policy>/<file>, because files of
// different policies may have the same name.
func Sources(objects []v1alpha1.RegoPolicy) []Source {
	var libraries []engine.Module
	for i := range objects {
		if objects[i].Spec.Library {
			libraries = append(libraries, modulesOf(&objects[i])...)
		}
	}
	sources := make([]Source, len(objects))
	for i := range objects {
		sources[i] = sourceOf(&objects[i], libraries)
	}
	return sources
}

// Members of an outcome that reconcilers act on.
const (
	// OutcomeSupersedes has names of operations.
	OutcomeSupersedes = "supersedes"
	// OutcomeSupersedesOrigins has origins of claims that no operation holds.
	OutcomeSupersedesOrigins = "supersedes_origins"
	// OutcomeDatastores has inventory paths of datastores and of folders of datastores, to choose one for a machine.
	OutcomeDatastores = "datastores"
)

var outcomes = []string{OutcomeSupersedes, OutcomeSupersedesOrigins, OutcomeDatastores}

func sourceOf(object *v1alpha1.RegoPolicy, libraries []engine.Module) Source {
	spec := &object.Spec
	s := Source{Library: spec.Library, object: object, Source: engine.Source{
		Name: object.Name, Package: spec.Package, Modules: modulesOf(object), Schema: inputSchema, Outcomes: outcomes, Types: typeOf,
		Timeout: spec.Timeout(),
	}}
	own := map[string]bool{}
	for _, m := range s.Modules {
		own[m.Name] = true
	}
	for _, l := range libraries {
		if !own[l.Name] {
			s.Libraries = append(s.Libraries, l)
		}
	}
	for _, t := range spec.Tests {
		s.Tests = append(s.Tests, engine.Module{Name: object.Name + "/" + t.Name, Source: t.Source})
	}
	s.Reads = readsOf(spec)
	if spec.Parameters != nil {
		s.Parameters = spec.Parameters.Raw
	}
	if spec.ParametersSchema != nil {
		s.ParametersSchema = spec.ParametersSchema.Raw
	}
	return s
}

// ReadsOf returns every kind that decisions of a RegoPolicy read, according to its spec.
func ReadsOf(object *v1alpha1.RegoPolicy) []engine.Read {
	reads := readsOf(&object.Spec)
	match := object.Spec.Match
	if match != nil && match.NamespaceSelector != nil || len(object.Spec.NamespaceModes) > 0 {
		reads = append(reads, namespaceRead)
	}
	return reads
}

func readsOf(spec *v1alpha1.RegoPolicySpec) (reads []engine.Read) {
	for _, r := range spec.Reads {
		reads = append(reads, engine.Read{
			APIVersion: r.APIVersion, Kind: r.Kind, Indexes: r.Indexes, Live: r.Freshness == v1alpha1.ReadLive,
		})
	}
	return reads
}

func modulesOf(object *v1alpha1.RegoPolicy) []engine.Module {
	modules := make([]engine.Module, len(object.Spec.Modules))
	for i, m := range object.Spec.Modules {
		modules[i] = engine.Module{Name: object.Name + "/" + m.Name, Source: m.Source}
	}
	return modules
}

// Check compiles a policy or checks a library, and discards the result.
func (s Source) Check() error {
	if _, err := s.compile(); err != nil || s.Library {
		return err
	}
	if err := CheckMatch(&s.object.Spec); err != nil {
		return fmt.Errorf("policy %s: %w", s.Name, err)
	}
	return nil
}

// CheckMatch returns an error if spec.match or spec.namespaceModes is invalid.
func CheckMatch(spec *v1alpha1.RegoPolicySpec) error {
	if _, err := newMatcher(spec.Match); err != nil {
		return fmt.Errorf("spec.match: %w", err)
	}
	_, err := newRegime(spec)
	return err
}

// withheld returns the errors for kinds that spec.reads must not list.
func (s Source) withheld() (errs engine.CompileErrors) {
	refuse := func(i int, err error) {
		errs = append(errs, engine.CompileError{File: s.Name, Message: fmt.Sprintf("spec.reads[%d]: %v", i, err), Contract: true})
	}
	for i, r := range s.Reads {
		if err := facts.Withheld(r.APIVersion, r.Kind); err != nil {
			refuse(i, err)
		}
		if r.APIVersion == all || r.Kind == all {
			refuse(i, errors.New("* is not allowed: list every kind by name"))
		}
	}
	return errs
}

// compile returns the policy; nil for a library.
func (s Source) compile() (policy *engine.Policy, err error) {
	defer recoverPanic(s.Name, &err)
	if s.Library {
		if err := engine.CheckLibrary(s.Source); err != nil {
			return nil, compileError("library", s.Name, err)
		}
		return nil, nil
	}
	if errs := s.withheld(); len(errs) > 0 {
		return nil, fmt.Errorf("policy %s reads objects that no policy may read:\n%w", s.Name, errs)
	}
	policy, err = engine.Compile(s.Source)
	if err == nil || problemOf(err) == v1alpha1.ReasonParametersInvalid {
		if wrong := s.conforms(); wrong != nil { // names the field, which the policy's own rule does not
			return nil, fmt.Errorf("the parameters of policy %s are not valid:\n%w", s.Name, wrong)
		}
	}
	if err != nil {
		return nil, compileError("policy", s.Name, err)
	}
	return policy, nil
}

func compileError(kind, name string, err error) error {
	return fmt.Errorf("%s %s does not compile:\n%w", kind, name, err)
}

// Slower returns what makes decisions of a policy slower than they could be: the places of [engine.Policy.Interpreted], those of
// [engine.Policy.Compared] for kinds that are not Sallyport's, which have selectableFields, and those of [engine.Policy.Unindexed]. All are nil
// for a library or a policy that does not compile.
func (s Source) Slower() (interpreted, compared, unindexed engine.CompileErrors) {
	policy, err := s.compile()
	if err != nil || policy == nil {
		return nil, nil, nil
	}
	compared = policy.Compared(func(apiVersion string) bool { return strings.HasPrefix(apiVersion, v1alpha1.GroupName+"/") })
	return policy.Interpreted(), compared, policy.Unindexed()
}
