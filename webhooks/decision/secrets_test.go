package decision

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The log shows how decisions differ before anything is redacted.
func TestDifferencesAboutSecretsAreNotShown(t *testing.T) {
	for kind, want := range map[string]string{"Secret": "the results are not shown because the request has a Secret", "ConfigMap": "hunter2"} {
		review := Review{Request: &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}}}
		if got := review.concealResults("hunter2"); got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
		if got := review.concealResults(""); got != "" {
			t.Errorf("%s: without a difference, got %q", kind, got)
		}
	}
}
