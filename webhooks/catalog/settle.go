package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// edition is a revision with what was compiled from it.
type edition struct {
	*compilation
	revision Revision
}

// settled is what a build has for one policy.
type settled struct {
	policy   *Policy // nil: it is not in the set
	state    State
	remember *edition
}

// settle finds what decides for a RegoPolicy: itself, else its last good revision, else nothing.
func (c *Catalog) settle(ctx context.Context, object *v1alpha1.RegoPolicy, libraries shelf, good map[string]Revision) settled {
	b := libraries.imports(object, c.sketches(object))
	current := &edition{revision: Revision{Policy: bare(object), Libraries: b.libraries}}
	current.compilation = c.compile(&current.revision)
	v := settled{state: stateOf(object)}
	v.state.Text = current.text()
	policy, lack := c.try(ctx, current, nil)
	if lack == nil {
		v.decides(current, policy)
		return v
	}
	if len(b.missing) > 0 && lack.Problem == v1alpha1.ReasonCompileFailed {
		lack.Problem, v.state.Lacking = v1alpha1.ReasonLibraryMissing, b.missing
	}
	v.state.Err, v.state.Problem, v.state.Missing = lack.Err, lack.Problem, lack.Missing
	for _, older := range c.older(object, good) {
		if policy, lack := c.try(ctx, older, object); lack == nil {
			v.state.LastGood = true
			v.decides(older, policy)
			return v
		}
	}
	// What is remembered stays so, for when the caches can answer for it again.
	v.remember = c.remembered(object)
	// A policy that is new may come a moment later. One that was in the last set, be it broken, must not be left out meanwhile.
	if uid, was := c.last[object.Name]; v.state.Problem != v1alpha1.ReasonReadsNotSynced || was && uid == object.UID {
		v.policy = broken(object, lack)
		if c.Reads != nil && v.policy.byNamespace() { // what is lacking for it makes the policy match more, not less
			c.Reads(ctx, object.Name, []engine.Read{namespaceRead})
		}
	}
	return v
}

func (v *settled) decides(e *edition, p *Policy) {
	v.policy, v.remember = p, e
	v.state.Active, v.state.ActiveHash = &e.revision, p.Revision()
}

// older gives what could decide in place of an object, the youngest first.
func (c *Catalog) older(object *v1alpha1.RegoPolicy, good map[string]Revision) []*edition {
	var all []*edition
	if known := c.remembered(object); known != nil {
		all = append(all, known)
	}
	if stored, ok := good[object.Name]; ok && stored.Policy.UID == object.UID {
		e := &edition{compilation: c.compile(&stored), revision: stored}
		if len(all) > 0 && stored.newer(&all[0].revision) {
			all = slices.Insert(all, 0, e)
		} else {
			all = append(all, e)
		}
	}
	return all
}

// remembered is what decided for the object before, nil if nothing did.
func (c *Catalog) remembered(object *v1alpha1.RegoPolicy) *edition {
	if known := c.memory[object.Name]; known != nil && known.revision.Policy.UID == object.UID {
		return known
	}
	return nil
}

// try returns the policy that an edition makes, to be asked. If it is to decide in place of a broken object, that object says how it is
// enforced, if its spec.namespaceModes are valid.
func (c *Catalog) try(ctx context.Context, e *edition, instead *v1alpha1.RegoPolicy) (*Policy, *Lack) {
	if e.err != nil {
		return nil, &Lack{Problem: e.problem, Err: e.err}
	}
	object := &e.revision.Policy
	if err := CheckWeight(object.Name, e.policy.Weight(), c.weight, cmp.Or(c.Most, MostWeight)); err != nil {
		return nil, &Lack{Problem: v1alpha1.ReasonLimitExceeded, Err: err}
	}
	if err := CheckMatch(&object.Spec); err != nil {
		return nil, &Lack{Problem: v1alpha1.ReasonCompileFailed, Err: fmt.Errorf("policy %s: %w", object.Name, err)}
	}
	match, _ := newMatcher(object.Spec.Match)
	p := &Policy{Policy: e.policy, name: object.Name, uid: object.UID, match: match, patchable: c.Patchable}
	if instead == nil || p.enforce(&instead.Spec) != nil {
		_ = p.enforce(&object.Spec)
	}
	p.reads = e.policy.Reads()
	if p.byNamespace() {
		p.reads = append(p.reads, namespaceRead)
	}
	if c.Reads == nil {
		return p, nil
	}
	lack := c.Reads(ctx, object.Name, p.reads)
	if lack != nil {
		lack.Err = fmt.Errorf("policy %s: spec.reads: %w", object.Name, lack.Err)
	}
	return p, lack
}

// namespaceRead is what selecting by the labels of namespaces reads.
var namespaceRead = engine.Read{APIVersion: "v1", Kind: "Namespace"}

func (p *Policy) byNamespace() bool { return p.match.namespaces != nil || p.regime.byLabels() }

// broken is what an object is in the set of which nothing can be asked.
func broken(object *v1alpha1.RegoPolicy, lack *Lack) *Policy {
	relief := fmt.Sprintf("set its spec.mode to %s", v1alpha1.ModeAudit)
	if len(object.Spec.NamespaceModes) > 0 {
		relief += " and remove its spec.namespaceModes"
	}
	p := &Policy{name: object.Name, uid: object.UID, err: &engine.Error{
		Cause: engine.FactUnavailable,
		Err:   fmt.Errorf("%w; repair RegoPolicy %s, or %s to let requests pass", brief(lack.Err), object.Name, relief),
	}}
	if OfText(lack.Problem) {
		p.err.Cause = engine.CompileFailed
	}
	_ = p.enforce(&object.Spec)
	p.match, _ = newMatcher(object.Spec.Match)
	p.reads = sourceOf(object, nil).Reads
	return p
}

// brief leaves of many compile errors the first: the requester is to see what is wrong, its author sees all in the status.
func brief(err error) error {
	var all engine.CompileErrors
	switch {
	case !errors.As(err, &all) || len(all) == 0:
		return err
	case len(all) == 1:
		return fmt.Errorf("it does not compile: %w", all[0])
	default:
		return fmt.Errorf("it does not compile: %w (and %d more)", all[0], len(all)-1)
	}
}
