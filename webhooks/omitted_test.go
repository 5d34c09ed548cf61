package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Of a large request the record tells who asked for what, and no more; it costs no more than its text.
func TestRecordsOfLargeRequests(t *testing.T) {
	const recordedBytes, recordedValues = 256 << 10, 32_000 // the limits
	for name, spec := range map[string]string{
		"many bytes":  `{"name": "x", "red": true, "text": "` + strings.Repeat("y", recordedBytes) + `"}`,
		"many values": `{"name": "x", "red": true, "list": [` + strings.Repeat("{},", recordedValues) + `0]}`,
	} {
		f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
		review := reviewOf(t, admissionv1.Update, spec, func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "ann" })
		f.Validate(t.Context(), review)
		record := f.only(t)
		text, err := json.Marshal(record.Request)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"digest":"sha256:`, `"username":"ann"`, `"operation":"UPDATE"`, `"kind":"ConfigMap"`, `"uid":"u-1"`, `"name":"cm"`, `"namespace":"ns"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s in %s", name, want, text)
			}
		}
		if !record.TooLarge || len(text) > 4096 || len(record.Policies) != 1 || record.Policies[0].Verdict != "denied" {
			t.Errorf("%s: got %d bytes, %+v", name, len(text), record.Policies)
		}
		again, err := record.Review()
		if err != nil || again.Request.UserInfo.Username != "ann" || again.Subject().UID != "u-1" && again.Subject().Name != "cm" {
			t.Errorf("%s: read back as %+v: %v", name, again, err)
		}
	}
}
