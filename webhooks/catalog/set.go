package catalog

import (
	_ "embed" // for the schema of input
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// inputSchema has every field that the input of a policy can have, so that a misspelled one does not compile. What the objects
// in it look like is left open.
//
//go:embed request_schema.json
var inputSchema []byte

// Policy is a compiled RegoPolicy.
type Policy struct {
	*engine.Policy
	// Mode and OnError as the RegoPolicy has them, defaults filled in.
	Mode    v1alpha1.PolicyMode
	OnError v1alpha1.PolicyErrorAction
	match   matcher
}

// Set is all policies that decide at one moment. It is immutable; a change makes a new one.
type Set struct {
	policies []*Policy
	index    resourceIndex
	reads    []engine.Read
}

// Compile makes a set out of RegoPolicies. The error joins those of all policies, so that one run tells everything.
func Compile(objects []v1alpha1.RegoPolicy) (*Set, error) {
	set := &Set{index: resourceIndex{}}
	var errs []error
	for _, source := range Sources(objects) {
		if source.Library {
			errs = append(errs, source.check())
			continue
		}
		policy, err := source.compile()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set.add(policy, source)
	}
	return set, errors.Join(errs...)
}

// Policies in the order of their names.
func (s *Set) Policies() []*Policy { return slices.Clone(s.policies) }

// Policy by name, or nil.
func (s *Set) Policy(name string) *Policy {
	for _, p := range s.policies {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// Reads is every kind, with its indexes, that the facts of any policy in the set may ask for.
func (s *Set) Reads() []engine.Read { return slices.Clone(s.reads) }

func (s *Set) add(p *Policy, source Source) {
	s.policies = append(s.policies, p)
	slices.SortFunc(s.policies, byName)
	s.index.add(p)
	s.reads = append(s.reads, source.Reads...)
	if p.match.namespaces != nil {
		s.reads = append(s.reads, engine.Read{APIVersion: "v1", Kind: "Namespace"})
	}
}

func byName(a, b *Policy) int { return strings.Compare(a.Name(), b.Name()) }

// Source is a RegoPolicy in the engine's terms.
type Source struct {
	engine.Source
	// Library tells modules for other policies from a policy.
	Library bool
	object  *v1alpha1.RegoPolicy
}

// Sources puts RegoPolicies into the engine's terms; each gets all libraries to choose from.
// Modules are named <policy>/<file>, because files of different policies may have the same name.
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

func sourceOf(object *v1alpha1.RegoPolicy, libraries []engine.Module) Source {
	spec := &object.Spec
	s := Source{Library: spec.Library, object: object, Source: engine.Source{
		Name: object.Name, Package: spec.Package, Modules: modulesOf(object), Schema: inputSchema,
		Timeout: time.Duration(spec.TimeoutMilliseconds) * time.Millisecond,
	}}
	if s.Timeout == 0 {
		s.Timeout = 500 * time.Millisecond // the default of the API, for objects that did not pass through it
	}
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
	for _, r := range spec.Reads {
		s.Reads = append(s.Reads, engine.Read{APIVersion: r.APIVersion, Kind: r.Kind, Indexes: r.Indexes})
	}
	if spec.Parameters != nil {
		s.Parameters = spec.Parameters.Raw
	}
	return s
}

func modulesOf(object *v1alpha1.RegoPolicy) []engine.Module {
	modules := make([]engine.Module, len(object.Spec.Modules))
	for i, m := range object.Spec.Modules {
		modules[i] = engine.Module{Name: object.Name + "/" + m.Name, Source: m.Source}
	}
	return modules
}

// Check compiles a policy or checks a library, without making use of it.
func (s Source) Check() error {
	if s.Library {
		return s.check()
	}
	_, err := s.compile()
	return err
}

func (s Source) check() error {
	if err := engine.CheckLibrary(s.Source); err != nil {
		return fmt.Errorf("library %s does not compile:\n%w", s.Name, err)
	}
	return nil
}

func (s Source) compile() (*Policy, error) {
	compiled, err := engine.Compile(s.Source)
	if err != nil {
		return nil, fmt.Errorf("policy %s does not compile:\n%w", s.Name, err)
	}
	match, err := newMatcher(s.object.Spec.Match)
	if err != nil {
		return nil, fmt.Errorf("policy %s: spec.match: %w", s.Name, err)
	}
	p := &Policy{Policy: compiled, Mode: s.object.Spec.Mode, OnError: s.object.Spec.OnError, match: match}
	if p.Mode == "" {
		p.Mode = v1alpha1.ModeEnforce
	}
	if p.OnError == "" {
		p.OnError = v1alpha1.OnErrorDeny
	}
	return p, nil
}
