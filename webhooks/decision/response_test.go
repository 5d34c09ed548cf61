package decision

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/webhooks/engine"
)

// creation is a review of the creation of a ConfigMap.
func creation(t *testing.T, change ...func(*admissionv1.AdmissionRequest)) *Review {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "cm", "namespace": "ns", "uid": "u-1"},
	}}
	review, err := reviewOfCreation(object, "configmaps", authenticationv1.UserInfo{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(review.Request)
	}
	return review
}

// Only the eviction of a pod is told to try again: who creates anything else does not.
func TestTooManyRequestsIsForEvictions(t *testing.T) {
	resource := func(group, resource, subresource string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) {
			r.Resource, r.SubResource = metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, subresource
		}
	}
	denying := []Denial{{engine.Denial{Code: 429}, "p"}}
	for name, tc := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   int
	}{
		"an eviction of a pod":                  {resource("", "pods", "eviction"), 429},
		"a pod":                                 {resource("", "pods", ""), 403},
		"a binding of a pod":                    {resource("", "pods", "binding"), 403},
		"an eviction of something else":         {resource("", "nodes", "eviction"), 403},
		"an eviction of another group's object": {resource("example.org", "pods", "eviction"), 403},
	} {
		j := &Decision{Question: Question{Review: creation(t, tc.change)}}
		if got := j.code(denying); got != tc.want {
			t.Errorf("%s: got code %d, want %d", name, got, tc.want)
		}
	}
}

// What cannot be mended by waiting decides the code, and denials that differ have the reason of their code.
func TestDenialsThatDiffer(t *testing.T) {
	for name, tc := range map[string]struct {
		codes  []int
		code   int
		reason metav1.StatusReason
	}{
		"forbidden before the rest":        {[]int{409, 422, 403}, 403, "Forbidden"},
		"invalid before a conflict":        {[]int{409, 422}, 422, "Invalid"},
		"a conflict before a failure":      {[]int{500, 409}, 409, "Conflict"},
		"a failure before one to wait for": {[]int{503, 500}, 500, "InternalError"},
		"what can be waited for":           {[]int{503, 503}, 503, "InternalError"},
		"a code of its own":                {[]int{418, 418}, 403, "Forbidden"},
	} {
		j := &Decision{Question: Question{Review: creation(t)}}
		var denying []Denial
		for i, code := range tc.codes {
			denying = append(denying, Denial{engine.Denial{Code: code, Reason: string(rune('A' + i))}, "p"})
		}
		if code := j.code(denying); code != tc.code || reason(denying, code) != tc.reason {
			t.Errorf("%s: got %d %s", name, code, reason(denying, code))
		}
	}
}

// Details name what blocks if one denial says it, and otherwise the object of the request.
func TestDetailsNameWhatBlocks(t *testing.T) {
	blocking := func(group string) Denial {
		return Denial{engine.Denial{Reason: "Busy", Message: "it is busy", Details: engine.Details{Group: group, Kind: "Lock", Name: "l", Field: "spec.lock"}}, "p"}
	}
	requested := metav1.StatusDetails{Kind: "ConfigMap", Name: "cm", UID: "u-1"}
	for name, tc := range map[string]struct {
		denying []Denial
		code    int
		want    metav1.StatusDetails
	}{
		"one that names what blocks":    {[]Denial{blocking("example.org")}, 409, metav1.StatusDetails{Group: "example.org", Kind: "Lock", Name: "l"}},
		"one of the object's own group": {[]Denial{blocking("")}, 403, metav1.StatusDetails{Kind: "Lock", Name: "l"}},
		"kubectl prints the object":     {[]Denial{blocking("example.org")}, 422, requested},
		"two":                           {[]Denial{blocking("example.org"), blocking("example.org")}, 409, requested},
		"one that names nothing":        {[]Denial{{engine.Denial{Reason: "Busy"}, "p"}}, 409, requested},
	} {
		j := &Decision{Question: Question{Review: creation(t)}}
		for _, o := range tc.denying {
			tc.want.Causes = append(tc.want.Causes, metav1.StatusCause{Type: "p/Busy", Message: o.Text(), Field: o.Details.Field})
		}
		if diff := cmp.Diff(&tc.want, j.details(tc.denying, tc.code)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// For programs, a denial whose cause is separate has it as a cause of its own, without object and remedy; kubectl prints the causes of a 422.
func TestCausesInShort(t *testing.T) {
	for name, tc := range map[string]struct {
		denial engine.Denial
		code   int
		want   []metav1.StatusCause
	}{
		"a cause and a remedy": {engine.Denial{Message: "a: no", Cause: "b; c", Remedy: "d"}, 403, []metav1.StatusCause{{Type: "p/Busy", Message: "[p/Busy] a: no because b; c; d"}, {Type: "Cause", Message: "b; c"}}},
		"a cause":              {engine.Denial{Message: "a: no", Cause: "b", RuleRemedy: "D"}, 403, []metav1.StatusCause{{Type: "p/Busy", Message: "[p/Busy] a: no because b. D"}, {Type: "Cause", Message: "b"}}},
		"a remedy":             {engine.Denial{Message: "a: no", Remedy: "d", RuleRemedy: "D"}, 403, []metav1.StatusCause{{Type: "p/Busy", Message: "[p/Busy] a: no; d"}, {Type: "Cause", Message: "a: no"}}},
		"neither":              {engine.Denial{Message: "a: no because b; d"}, 403, []metav1.StatusCause{{Type: "p/Busy", Message: "[p/Busy] a: no because b; d"}}},
		"a 422":                {engine.Denial{Message: "a: no", Cause: "b"}, 422, []metav1.StatusCause{{Type: "p/Busy", Message: "[p/Busy] a: no because b"}}},
	} {
		d := &Decision{Question: Question{Review: creation(t)}}
		tc.denial.Reason = "Busy"
		if diff := cmp.Diff(tc.want, d.details([]Denial{{tc.denial, "p"}}, tc.code).Causes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
