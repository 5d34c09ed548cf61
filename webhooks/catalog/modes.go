package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// leniency orders modes by how much they let pass.
var leniency = []v1alpha1.PolicyMode{v1alpha1.ModeEnforce, v1alpha1.ModeWarn, v1alpha1.ModeAudit}

// regime is a RegoPolicy's spec.mode with its spec.namespaceModes.
type regime struct {
	mode       v1alpha1.PolicyMode
	namespaces []namespaceMode
	spec       []v1alpha1.NamespaceMode // that namespaces were made of
}

// namespaceMode is one of a RegoPolicy's spec.namespaceModes.
type namespaceMode struct {
	mode     v1alpha1.PolicyMode
	selector labels.Selector // nil: every namespace
}

// newRegime returns the modes of a spec. If a selector is invalid, it also returns an error, and the regime is the strictest mode of all
// entries in every namespace.
func newRegime(spec *v1alpha1.RegoPolicySpec) (regime, error) {
	r := regime{mode: cmp.Or(spec.Mode, v1alpha1.ModeEnforce), spec: spec.NamespaceModes}
	var errs []error
	for i := range spec.NamespaceModes {
		entry := &spec.NamespaceModes[i]
		selector, err := newSelector(&entry.NamespaceSelector)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.namespaceModes[%d].namespaceSelector: %w", i, err))
		}
		r.namespaces = append(r.namespaces, namespaceMode{mode: entry.Mode, selector: selector})
	}
	if len(errs) > 0 {
		r.mode, r.namespaces = r.strictest(), nil
	}
	return r, errors.Join(errs...)
}

// entryFor returns the index of the first entry that selects a namespace with those labels, or -1.
func (r regime) entryFor(set labels.Set) int {
	return slices.IndexFunc(r.namespaces, func(n namespaceMode) bool { return n.selector == nil || n.selector.Matches(set) })
}

// of returns the mode for a namespace with those labels.
func (r regime) of(set labels.Set) v1alpha1.PolicyMode {
	if i := r.entryFor(set); i >= 0 {
		return r.namespaces[i].mode
	}
	return r.mode
}

// strictestOf returns the strictest mode of several label sets: a request may change the labels of the namespace.
func (r regime) strictestOf(sets homes) v1alpha1.PolicyMode {
	mode := v1alpha1.ModeAudit
	for _, set := range sets {
		mode = stricter(mode, r.of(set))
	}
	return mode
}

// strictest returns the strictest mode that any namespace may have.
func (r regime) strictest() v1alpha1.PolicyMode {
	mode := r.mode
	for _, n := range r.namespaces {
		mode = stricter(mode, n.mode)
	}
	return mode
}

// byLabels reports whether the mode depends on the labels of namespaces.
func (r regime) byLabels() bool {
	return slices.ContainsFunc(r.namespaces, func(n namespaceMode) bool { return n.selector != nil })
}

// modeFor returns the mode in which the policy evaluates a request. If the labels of the namespace are needed and cannot be read, it is
// the strictest that it may be.
func (p *Policy) modeFor(request *admissionv1.AdmissionRequest, home labelsOf) (v1alpha1.PolicyMode, error) {
	switch {
	case !placed(request):
		return p.Mode, nil
	case !p.regime.byLabels():
		return p.regime.of(nil), nil
	}
	sets, err := home()
	if err != nil {
		return p.regime.strictest(), err
	}
	return p.regime.strictestOf(sets), nil
}

// enforce sets how the policy is enforced, with the defaults of the API. See [newRegime] for the error.
func (p *Policy) enforce(spec *v1alpha1.RegoPolicySpec) (err error) {
	p.regime, err = newRegime(spec)
	p.Mode, p.OnError, p.Override = p.regime.mode, cmp.Or(spec.OnError, v1alpha1.OnErrorDeny), cmp.Or(spec.Override, v1alpha1.OverrideUsers)
	p.failure = cmp.Or(spec.FailurePolicy, v1alpha1.FailureFail)
	return err
}

func stricter(a, b v1alpha1.PolicyMode) v1alpha1.PolicyMode {
	if slices.Index(leniency, b) < slices.Index(leniency, a) {
		return b
	}
	return a
}
