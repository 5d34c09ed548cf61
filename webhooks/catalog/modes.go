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

// leniency orders modes by how much they let pass, overridable who may override by how many they are.
var (
	leniency    = []v1alpha1.PolicyMode{v1alpha1.ModeEnforce, v1alpha1.ModeWarn, v1alpha1.ModeAudit}
	overridable = []v1alpha1.PolicyOverride{v1alpha1.OverrideNobody, v1alpha1.OverrideUsers, v1alpha1.OverrideEverybody}
)

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
	// unclear tells that some of its selector cannot be used: nobody knows whether it selects what the rest of it selects.
	unclear bool
}

// newRegime gives, beside an error, what can be used all the same.
func newRegime(spec *v1alpha1.RegoPolicySpec) (regime, error) {
	r := regime{mode: cmp.Or(spec.Mode, v1alpha1.ModeEnforce), spec: spec.NamespaceModes}
	var errs []error
	for i := range spec.NamespaceModes {
		entry := &spec.NamespaceModes[i]
		_, selector, err := newSelector(&entry.NamespaceSelector)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.namespaceModes[%d].namespaceSelector: %w", i, err))
		}
		r.namespaces = append(r.namespaces, namespaceMode{mode: entry.Mode, selector: selector, unclear: err != nil})
	}
	return r, errors.Join(errs...)
}

// of gives the mode for a namespace with those labels: that of the first entry that selects it, else spec.mode. Where that is
// unclear the strictest counts of what it may be.
func (r regime) of(set labels.Set) v1alpha1.PolicyMode {
	mode := v1alpha1.ModeAudit
	for _, n := range r.namespaces {
		if n.selector != nil && !n.selector.Matches(set) {
			continue
		}
		mode = stricter(mode, n.mode)
		if !n.unclear {
			return mode
		}
	}
	return stricter(mode, r.mode)
}

// strictestOf gives the mode for a namespace whose labels a request changes: the strictest that it has before or after.
func (r regime) strictestOf(sets homes) v1alpha1.PolicyMode {
	mode := v1alpha1.ModeAudit
	for _, set := range sets {
		mode = stricter(mode, r.of(set))
	}
	return mode
}

// strictest gives the mode for a namespace of whose labels nothing is known.
func (r regime) strictest() v1alpha1.PolicyMode {
	mode := r.mode
	for _, n := range r.namespaces {
		mode = stricter(mode, n.mode)
	}
	return mode
}

// byLabels tells whether the mode follows from a namespace's labels.
func (r regime) byLabels() bool {
	return slices.ContainsFunc(r.namespaces, func(n namespaceMode) bool { return n.selector != nil })
}

// modeFor gives the mode in which the policy judges a request: where it decides in place of a broken object, the looser one of
// what both say. If the labels of the namespace cannot be read, so that the mode is not known, it is the strictest that it may be.
func (p *Policy) modeFor(request *admissionv1.AdmissionRequest, home labelsOf) (v1alpha1.PolicyMode, error) {
	if !placed(request) {
		return p.Mode, nil
	}
	sets := homes{nil}
	var err error
	if slices.ContainsFunc(p.regimes, regime.byLabels) {
		sets, err = home()
	}
	mode := v1alpha1.ModeEnforce
	for _, r := range p.regimes {
		if err != nil {
			mode = looser(mode, r.strictest())
		} else {
			mode = looser(mode, r.strictestOf(sets))
		}
	}
	return mode, err
}

// enforce has the policy enforced as a spec of it says, defaults filled in as the API would. Beside an error it does so with what
// can be used.
func (p *Policy) enforce(spec *v1alpha1.RegoPolicySpec) error {
	r, err := newRegime(spec)
	p.regimes = []regime{r}
	p.Mode, p.OnError, p.Override = r.mode, cmp.Or(spec.OnError, v1alpha1.OnErrorDeny), cmp.Or(spec.Override, v1alpha1.OverrideUsers)
	return err
}

// loosen has the policy let pass, too, what another spec of it lets pass.
func (p *Policy) loosen(by *v1alpha1.RegoPolicySpec) {
	other := &Policy{}
	_ = other.enforce(by) // what of it can be used
	p.regimes = append(p.regimes, other.regimes...)
	p.Mode = looser(p.Mode, other.Mode)
	if other.OnError == v1alpha1.OnErrorAllow {
		p.OnError = other.OnError
	}
	if slices.Index(overridable, other.Override) > slices.Index(overridable, p.Override) {
		p.Override = other.Override
	}
	if match, _ := newMatcher(by.Match); match.PolicyMatch != nil {
		p.match = append(p.match, match)
	}
}

func looser(a, b v1alpha1.PolicyMode) v1alpha1.PolicyMode {
	if slices.Index(leniency, b) > slices.Index(leniency, a) {
		return b
	}
	return a
}

func stricter(a, b v1alpha1.PolicyMode) v1alpha1.PolicyMode {
	if looser(a, b) == b {
		return a
	}
	return b
}
