package catalog

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Revision is the complete source of one revision of a policy, so that it can be evaluated after the objects have
// changed.
type Revision struct {
	// Policy has the name, UID, generation and spec, without tests.
	Policy v1alpha1.RegoPolicy `json:"policy"`
	// Libraries are the imported ones, transitively, by name, with the modules that are reached.
	Libraries []v1alpha1.RegoPolicy `json:"libraries,omitempty"`
}

// Encode returns the JSON in which a revision is stored.
func (r Revision) Encode() ([]byte, error) {
	kept := Revision{Policy: bare(&r.Policy)}
	for i := range r.Libraries {
		kept.Libraries = append(kept.Libraries, bare(&r.Libraries[i]))
	}
	return json.Marshal(kept)
}

// Decode decodes the result of Encode. It ignores fields of later versions.
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

// bare returns a RegoPolicy without fields that do not affect its decisions: tests, status, and metadata that does not identify it.
func bare(object *v1alpha1.RegoPolicy) v1alpha1.RegoPolicy {
	spec := object.Spec
	spec.Tests = nil
	return v1alpha1.RegoPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, Generation: object.Generation},
		Spec:       spec,
	}
}

// newer reports whether r was made from later objects than another revision of the same policy. A library that was deleted and
// created again counts as later; if the revisions differ both ways, neither is newer.
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

// OfText reports whether a problem is in the object, and not in its cluster.
func OfText(problem v1alpha1.ConditionReason) bool {
	switch problem {
	case v1alpha1.ReasonCompileFailed, v1alpha1.ReasonContractBroken, v1alpha1.ReasonParametersInvalid, v1alpha1.ReasonLibraryMissing, v1alpha1.ReasonLibraryConflict:
		return true
	}
	return false
}

// Grant is a right that Sallyport lacks to read a kind, as an RBAC rule.
type Grant struct {
	APIGroup, Resource string
	Verbs              []string
}

// String returns the rule as JSON, for a ClusterRole.
func (g Grant) String() string {
	text, _ := json.Marshal(map[string][]string{"apiGroups": {g.APIGroup}, "resources": {g.Resource}, "verbs": g.Verbs})
	return string(text)
}

// State is the state of a RegoPolicy.
type State struct {
	Name       string
	UID        types.UID
	Generation int64
	// Library reports whether it is a library. A library is never Active: each policy keeps the modules that it was compiled with.
	Library bool
	// Err is why the current object is not active, or, for a library, does not compile. Problem is its reason, and Missing the
	// rights that would resolve [v1alpha1.ReasonReadsForbidden].
	Err     error
	Problem v1alpha1.ConditionReason
	Missing []Grant
	// Lacking are the unresolved references to libraries, dotted, if Problem is [v1alpha1.ReasonLibraryMissing].
	Lacking []string
	// Text identifies what the current object was compiled from: modules, parameters and libraries, without tests.
	Text string
	// Active is the active revision. If it is nil, requests that match the policy follow its onError, unless its caches are still
	// syncing.
	Active *Revision
	// ActiveHash is the revision in decision records.
	ActiveHash string
	// LastGood reports whether the active revision is older than the current object.
	LastGood bool
}
