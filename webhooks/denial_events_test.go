package webhooks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
)

// Who looks at an object learns what was refused about it, by whom and why, unless nothing was really asked for.
func TestDenialsAreEvents(t *testing.T) {
	const tooRed = "Warning TooRed ConfigMap/cm(u-1) "
	const parent = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm", "namespace": "ns", "uid": "u-parent"}}`
	scale := func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }
	for name, tc := range map[string]struct {
		operation admissionv1.Operation
		spec      string
		change    []func(*admissionv1.AdmissionRequest)
		want      []string
	}{
		"an update":      {operation: "UPDATE", spec: red, want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE by bob)"}},
		"a deletion":     {operation: "DELETE", spec: red, want: []string{tooRed + "Delete RegoPolicy: [colour/TooRed] x has red (DELETE by bob)"}},
		"two reasons":    {operation: "UPDATE", spec: redAndBig, want: []string{tooRed + "Update RegoPolicy: [colour/TooRed] x has red (UPDATE by bob)", "Warning TooBig ConfigMap/cm(u-1) Update RegoPolicy: [size/TooBig] x has big (UPDATE by bob)"}},
		"of its parent":  {operation: "UPDATE", spec: red, change: list(scale), want: []string{"Warning TooRed ConfigMap/cm(u-parent) Update RegoPolicy: [colour/TooRed] x has red (UPDATE of scale by bob)"}},
		"a creation":     {operation: "CREATE", spec: red},
		"tried out only": {operation: "UPDATE", spec: red, change: list(dryRun)},
		"nothing wrong":  {operation: "UPDATE", spec: harmless},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, e := overridable(t, onScale)
			r.parent = parent
			f.Validate(t.Context(), verified(reviewOf(t, tc.operation, tc.spec, append(list(by("bob")), tc.change...)...)))
			if diff := cmp.Diff(tc.want, e.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	f, r, e := overridable(t, onScale)
	r.parent = "null"
	if f.Validate(t.Context(), verified(reviewOf(t, "UPDATE", red, by("bob"), scale))).Allowed || len(e.events) > 0 {
		t.Errorf("told of what is not there: %q", e.events)
	}
	if note := shortened(strings.Repeat("ä", maxNote)); len(note) > maxNote || !strings.HasSuffix(note, "ä") {
		t.Errorf("a long note has %d bytes", len(note))
	}
}
