package webhooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/webhooks/engine"
)

// Only the eviction of a pod is told to try again: who creates anything else does not.
func TestTooManyRequestsIsForEvictions(t *testing.T) {
	resource := func(group, resource, subresource string) func(*admissionv1.AdmissionRequest) {
		return func(r *admissionv1.AdmissionRequest) {
			r.Resource, r.SubResource = metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, subresource
		}
	}
	refusing := []objection{{engine.Denial{Code: 429}, "p"}}
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
		j := &Decision{Question: Question{Review: reviewOf(t, admissionv1.Create, `{}`, tc.change)}}
		if got := j.code(refusing); got != tc.want {
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
		j := &Decision{Question: Question{Review: reviewOf(t, admissionv1.Create, `{}`)}}
		var refusing []objection
		for i, code := range tc.codes {
			refusing = append(refusing, objection{engine.Denial{Code: code, Reason: string(rune('A' + i))}, "p"})
		}
		if code := j.code(refusing); code != tc.code || reason(refusing, code) != tc.reason {
			t.Errorf("%s: got %d %s", name, code, reason(refusing, code))
		}
	}
}

// Details name what blocks if one denial says it, and otherwise the object of the request.
func TestDetailsNameWhatBlocks(t *testing.T) {
	blocking := func(group string) objection {
		return objection{engine.Denial{Reason: "Busy", Message: "it is busy", Details: engine.Details{Group: group, Kind: "Lock", Name: "l", Field: "spec.lock"}}, "p"}
	}
	requested := metav1.StatusDetails{Kind: "ConfigMap", Name: "cm", UID: "u-1"}
	for name, tc := range map[string]struct {
		refusing []objection
		code     int
		want     metav1.StatusDetails
	}{
		"one that names what blocks":    {[]objection{blocking("example.org")}, 409, metav1.StatusDetails{Group: "example.org", Kind: "Lock", Name: "l"}},
		"one of the object's own group": {[]objection{blocking("")}, 403, metav1.StatusDetails{Kind: "Lock", Name: "l"}},
		"kubectl prints the object":     {[]objection{blocking("example.org")}, 422, requested},
		"two":                           {[]objection{blocking("example.org"), blocking("example.org")}, 409, requested},
		"one that names nothing":        {[]objection{{engine.Denial{Reason: "Busy"}, "p"}}, 409, requested},
	} {
		j := &Decision{Question: Question{Review: reviewOf(t, admissionv1.Create, `{}`)}}
		for _, o := range tc.refusing {
			tc.want.Causes = append(tc.want.Causes, metav1.StatusCause{Type: "p/Busy", Message: o.text(), Field: o.Details.Field})
		}
		if diff := cmp.Diff(&tc.want, j.details(tc.refusing, tc.code)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
