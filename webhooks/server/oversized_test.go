package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
)

// An object of ours that is too large is denied with its largest field, before any policy is asked; one that was stored like that may be
// changed, as long as it does not grow.
func TestHandlerDeniesLargeObjects(t *testing.T) {
	text := func(kib int) string { return strings.Repeat("x", kib<<10) }
	annotated := func(kib int) string {
		return fmt.Sprintf(`{"metadata": {"name": "web-1", "annotations": {"a": %q}}, "spec": {"cpu": 2}}`, text(kib))
	}
	const policies = "RegoPolicy"
	for name, tc := range map[string]struct{ kind, object, old, field string }{
		"as large as may be":     {"VirtualMachine", annotated(63), "", ""},
		"a large annotation":     {"VirtualMachine", annotated(65), "", "metadata.annotations"},
		"many annotations":       {"VirtualDisk", `{"metadata": {"name": "web-1", "annotations": {"x": ""` + many(9000) + `}}}`, "", "metadata.annotations"},
		"labels":                 {"VirtualMachineOperation", `{"metadata": {"name": "web-1", "labels": {"x": ""` + many(9000) + `}}}`, "", "metadata.labels"},
		"finalizers":             {"VirtualMachine", fmt.Sprintf(`{"metadata": {"name": "web-1", "finalizers": [%q]}}`, text(65)), "", "metadata.finalizers"},
		"a list of the spec":     {"VSphereTemplate", fmt.Sprintf(`{"metadata": {"name": "web-1"}, "spec": {"list": [%q]}}`, text(65)), "", "spec.list"},
		"together":               {"VirtualMachine", fmt.Sprintf(`{"metadata": {"name": "web-1", "annotations": {"a": %q}}, "spec": {"b": %q}}`, text(33), text(32)), "", "metadata.annotations"},
		"managed fields":         {"VirtualMachine", fmt.Sprintf(`{"metadata": {"name": "web-1", "managedFields": [{"manager": %q}]}}`, text(65)), "", ""},
		"a status":               {"VirtualMachine", fmt.Sprintf(`{"metadata": {"name": "web-1"}, "status": {"a": %q}}`, text(65)), "", ""},
		"a pool":                 {"VirtualMachinePool", annotated(255), "", ""},
		"a larger pool":          {"VirtualMachinePool", annotated(257), "", "metadata.annotations"},
		"a policy":               {policies, annotated(300), "", ""},
		"it grows":               {"VirtualMachine", annotated(67), annotated(66), "metadata.annotations"},
		"it grows to that":       {"VirtualMachine", annotated(66), annotated(1), "metadata.annotations"},
		"it has been that large": {"VirtualMachine", annotated(66), annotated(66), ""},
		"it shrinks":             {"VirtualMachine", annotated(66), annotated(67), ""},
	} {
		t.Run(name, func(t *testing.T) {
			operation, old := "CREATE", ""
			if tc.old != "" {
				operation, old = "UPDATE", `, "oldObject": `+tc.old
			}
			body := fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r-1", "operation": %q,
				"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": %q}, "resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "things"},
				"name": "web-1", "namespace": "ns", "userInfo": {"username": "ann"}, "object": %s%s}}`, operation, tc.kind, tc.object, old)
			review, err := decision.Decode([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			is := oversized(review)
			if (is == nil) != (tc.field == "") {
				t.Fatalf("got %+v", is)
			}
			if is != nil && (is.UID != "r-1" || is.Result.Code != 403 || is.Result.Details.Causes[0].Field != tc.field) {
				t.Errorf("got %+v, want one that names %s", is.Result, tc.field)
			}
			if tc.field != "metadata.annotations" || tc.kind != "VirtualMachine" {
				return
			}
			var answer admissionv1.AdmissionReview // as the API server gets it
			mux, w := http.NewServeMux(), httptest.NewRecorder()
			Register(decision.NewDecider(&catalog.Set{}, toys.World{}, nil, time.Now), prometheus.NewRegistry(), mux.Handle, logr.Discard())
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, ValidatePath, strings.NewReader(body)))
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response.Allowed {
				t.Errorf("got %+v, %v", answer.Response, err)
			}
		})
	}
}

// BenchmarkOversized measures what it takes to find the size of an ordinary machine.
func BenchmarkOversized(b *testing.B) {
	const object = `{"metadata": {"name": "web-1", "namespace": "ns", "uid": "u", "labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {"cpu": 2,
		"memory": "2Gi", "runPolicy": "AlwaysOn", "runtime": {"vsphere": {"serverRef": {"name": "vc-1"}, "clone": {"folder": "/dc/vm/a"}}}}, "status": {"phase": "Running"}}`
	review, err := decision.Decode(fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r-1", "operation": "UPDATE",
		"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": "VirtualMachine"}, "name": "web-1", "userInfo": {}, "object": %s, "oldObject": %[1]s}}`, object))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if oversized(review) != nil {
			b.Fatal("denied")
		}
	}
}

// many returns members of an object.
func many(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"k%d":"v"`, i)
	}
	return text.String()
}
