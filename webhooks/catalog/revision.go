package catalog

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Revision is all that one revision of a policy is made of. Whoever has it can decide as the policy did then, whatever has
// become of the objects since.
type Revision struct {
	// Policy has the name, the UID, the generation and the spec, without tests.
	Policy v1alpha1.RegoPolicy `json:"policy"`
	// Libraries are those that the policy imports, transitively, by name; of their modules those that it reaches.
	Libraries []v1alpha1.RegoPolicy `json:"libraries,omitempty"`
}

// Encode gives the JSON in which a revision is stored.
func (r Revision) Encode() ([]byte, error) {
	kept := Revision{Policy: bare(&r.Policy)}
	for i := range r.Libraries {
		kept.Libraries = append(kept.Libraries, bare(&r.Libraries[i]))
	}
	return json.Marshal(kept)
}

// Decode reads what Encode wrote. Fields that it does not know, of a later release, are left out.
func Decode(text []byte) (Revision, error) {
	var r Revision
	if err := json.Unmarshal(text, &r); err != nil {
		return Revision{}, fmt.Errorf("reading a stored revision: %w", err)
	}
	switch {
	case r.Policy.Name == "" || r.Policy.UID == "":
		return Revision{}, errors.New("reading a stored revision: policy.metadata has no name or no uid")
	case len(r.Policy.Spec.Modules) == 0:
		return Revision{}, fmt.Errorf("reading a stored revision of policy %s: policy.spec.modules is empty", r.Policy.Name)
	}
	return r, nil
}

// bare is a RegoPolicy without what has no part in its decisions: tests, status, and metadata other than what identifies it.
func bare(object *v1alpha1.RegoPolicy) v1alpha1.RegoPolicy {
	spec := object.Spec
	spec.Tests = nil
	return v1alpha1.RegoPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, Generation: object.Generation},
		Spec:       spec,
	}
}

// newer tells whether a revision was made from later objects than another one of the same policy. A library that was deleted
// and made again counts as later; where two revisions differ both ways, none is newer.
func (r *Revision) newer(than *Revision) bool {
	if r.Policy.Generation != than.Policy.Generation {
		return r.Policy.Generation > than.Policy.Generation
	}
	later := false
	for i := range r.Libraries {
		for j := range than.Libraries {
			mine, theirs := &r.Libraries[i], &than.Libraries[j]
			if mine.Name != theirs.Name || mine.UID != theirs.UID {
				continue
			}
			if mine.Generation < theirs.Generation {
				return false
			}
			later = later || mine.Generation > theirs.Generation
		}
	}
	return later
}

// OfText reports whether a problem is with what the RegoPolicy says, and not with the cluster.
func OfText(problem v1alpha1.ConditionReason) bool {
	switch problem {
	case v1alpha1.ReasonCompileFailed, v1alpha1.ReasonContractBroken, v1alpha1.ReasonParametersInvalid, v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonLibraryMissing, v1alpha1.ReasonLibraryConflict:
		return true
	}
	return false
}

// Grant is a right that Sallyport lacks to read a kind, in the terms of an RBAC rule.
type Grant struct {
	APIGroup, Resource string
	Verbs              []string
}

// String gives the rule as it stands in a ClusterRole.
func (g Grant) String() string {
	text, _ := json.Marshal(map[string][]string{"apiGroups": {g.APIGroup}, "resources": {g.Resource}, "verbs": g.Verbs})
	return string(text)
}

// State is what became of a RegoPolicy.
type State struct {
	Name       string
	UID        types.UID
	Generation int64
	// Library tells modules for other policies from a policy. A library never is Active: each policy keeps those that it was
	// compiled with.
	Library bool
	// Err is why the present object does not decide; nil if it does or, for a library, if it compiles. Problem is the same in
	// a word, and Missing the rights that would end [v1alpha1.ReasonReadsForbidden].
	Err     error
	Problem v1alpha1.ConditionReason
	Missing []Grant
	// Lacking is what it refers to in libraries that are not there, dotted, after [v1alpha1.ReasonLibraryMissing].
	Lacking []string
	// Text identifies what the present object was compiled from: its modules, parameters and libraries, without its tests.
	Text string
	// Active is what decides. If it is nil nothing does: requests that the policy matches follow its onError, unless its caches
	// are only being filled.
	Active *Revision
	// ActiveHash is the revision in decision records.
	ActiveHash string
	// LastGood is set if what decides is an older revision than the present object.
	LastGood bool
}
