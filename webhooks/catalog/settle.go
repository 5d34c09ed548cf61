package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// compiledRevision is a revision and its compilation.
type compiledRevision struct {
	*compilation
	revision Revision
}

// choice is the result of a build for one policy.
type choice struct {
	policy   *Policy // nil if it is not in the set
	state    State
	remember *compiledRevision
}

// choose selects the active revision of a RegoPolicy: the object, or its last good revision, or none.
func (c *Catalog) choose(ctx context.Context, object *v1alpha1.RegoPolicy, libraries libraries, good map[string]Revision) choice {
	b := libraries.imports(object, c.outlinesOf(object))
	current := &compiledRevision{revision: Revision{Policy: bare(object), Libraries: b.libraries}}
	current.compilation = c.compile(&current.revision)
	v := choice{state: stateOf(object)}
	v.state.Text = current.text()
	policy, lack := c.usable(ctx, current, nil)
	if lack == nil {
		v.decides(current, policy)
		return v
	}
	if len(b.missing) > 0 && lack.Problem == v1alpha1.ReasonCompileFailed {
		lack.Problem, v.state.Lacking = v1alpha1.ReasonLibraryMissing, b.missing
	}
	v.state.Err, v.state.Problem, v.state.Missing = lack.Err, lack.Problem, lack.Missing
	for _, older := range c.fallbacks(object, good) {
		if policy, lack := c.usable(ctx, older, object); lack == nil {
			v.state.LastGood = true
			v.decides(older, policy)
			return v
		}
	}
	// The remembered edition stays for when its caches have synced again.
	v.remember = c.remembered(object)
	// A new policy may be left out until its reads have synced. One that was in the last set, even a broken one, must stay.
	if uid, was := c.last[object.Name]; v.state.Problem != v1alpha1.ReasonReadsNotSynced || was && uid == object.UID {
		v.policy = broken(object, lack)
		if c.Reads != nil && v.policy.byNamespace() { // until the namespaces can be read, the policy matches more, not less
			c.Reads(ctx, object.Name, []engine.Read{namespaceRead})
		}
	}
	return v
}

func (v *choice) decides(e *compiledRevision, p *Policy) {
	v.policy, v.remember = p, e
	v.state.Active, v.state.ActiveHash = &e.revision, p.Revision()
}

// fallbacks returns the editions that could replace an object, the latest first.
func (c *Catalog) fallbacks(object *v1alpha1.RegoPolicy, good map[string]Revision) []*compiledRevision {
	var all []*compiledRevision
	if known := c.remembered(object); known != nil {
		all = append(all, known)
	}
	if stored, ok := good[object.Name]; ok && stored.Policy.UID == object.UID {
		e := &compiledRevision{compilation: c.compile(&stored), revision: stored}
		if len(all) > 0 && stored.newer(&all[0].revision) {
			all = slices.Insert(all, 0, e)
		} else {
			all = append(all, e)
		}
	}
	return all
}

// remembered returns the last active edition of the object, or nil.
func (c *Catalog) remembered(object *v1alpha1.RegoPolicy) *compiledRevision {
	if known := c.memory[object.Name]; known != nil && known.revision.Policy.UID == object.UID {
		return known
	}
	return nil
}

// usable makes a policy of an edition. If it replaces a broken object, that object determines how it is enforced, if its
// spec.namespaceModes are valid.
func (c *Catalog) usable(ctx context.Context, e *compiledRevision, instead *v1alpha1.RegoPolicy) (*Policy, *Lack) {
	if e.err != nil {
		return nil, &Lack{Problem: e.problem, Err: e.err}
	}
	object := &e.revision.Policy
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

// namespaceRead is the read for selecting by labels of namespaces.
var namespaceRead = engine.Read{APIVersion: "v1", Kind: "Namespace"}

func (p *Policy) byNamespace() bool { return p.match.namespaces != nil || p.regime.byLabels() }

// broken returns the policy of an object that cannot be evaluated.
func broken(object *v1alpha1.RegoPolicy, lack *Lack) *Policy {
	relief := fmt.Sprintf("set its spec.mode to %s", v1alpha1.ModeAudit)
	if len(object.Spec.NamespaceModes) > 0 {
		relief += " and remove its spec.namespaceModes"
	}
	p := &Policy{name: object.Name, uid: object.UID, err: &engine.Error{
		Cause: engine.FactUnavailable,
		Err:   fmt.Errorf("%w; repair RegoPolicy %s, or %s to let requests pass", firstError(lack.Err), object.Name, relief),
	}}
	if OfText(lack.Problem) {
		p.err.Cause = engine.CompileFailed
	}
	_ = p.enforce(&object.Spec)
	p.match, _ = newMatcher(object.Spec.Match)
	p.reads = sourceOf(object, nil).Reads
	return p
}

// firstError reduces several compile errors to the first, for the requester; the status has all.
func firstError(err error) error {
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
