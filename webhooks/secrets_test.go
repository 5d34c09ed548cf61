package webhooks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
)

// redacted replaces the data of a Secret in messages.
const redacted = "(data of the Secret)"

const password, pem = "open-sesame", "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\n-----END KEY-----\n"

// secretReview is about a Secret that has them.
func secretReview(t *testing.T, operation admissionv1.Operation) *decision.Review {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns", "uid": "u-1"}, "data": {"password": %q, "key": %q, "n": %q}}`,
		base64.StdEncoding.EncodeToString([]byte(password)), base64.StdEncoding.EncodeToString([]byte(pem)), base64.StdEncoding.EncodeToString([]byte("1")))
	return reviewOf(t, operation, "{}", func(r *admissionv1.AdmissionRequest) {
		r.Name, r.Kind.Kind, r.Resource.Resource = "s", "Secret", "secrets"
		for _, object := range []*runtime.RawExtension{&r.Object, &r.OldObject} {
			if object.Raw != nil {
				object.Raw = []byte(text)
			}
		}
	})
}

func onSecrets(s *v1alpha1.RegoPolicySpec) { s.Match.Resources[0].Resources = []string{"secrets"} }

// leaks tells whether any form of the data is in a text.
func leaks(text string) bool {
	for _, secret := range []string{password, "MIIBVgIBADANBgkq", base64.StdEncoding.EncodeToString([]byte(password)), base64.StdEncoding.EncodeToString([]byte(pem))} {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// revealing are ways in which policies tell what they have read.
var revealing = map[string]string{
	"a value":            `$"{input.request.object.data.password} is weak"`,
	"a decoded value":    `$"{base64.decode(input.request.object.data.password)} is weak"`,
	"all data":           `$"{input.request.object.data} is weak"`,
	"the object as JSON": `json.marshal(input.request.object)`,
	"a PEM, quoted":      `json.marshal({"key": base64.decode(input.request.object.data.key)})`,
	"a line of a PEM":    `split(base64.decode(input.request.object.data.key), "\n")[1]`,
	"an old value":       `$"it was {input.request.oldObject.data.password}"`,
}

// Nothing of the data of a Secret gets out through what a policy says of it: not in the response, which is in audit logs, not in events,
// reports and records.
func TestWhatPoliciesSayOfSecretsIsConcealed(t *testing.T) {
	for name, message := range revealing {
		for kind, rule := range map[string]string{
			"denial":  "# METADATA\n# title: T\n# custom: {reason: Weak, remedyInMessage: do it}\n" + `deny contains {"reason": "Weak", "message": ` + message + `, "details": {"field": ` + message + `}} if true` + "\n",
			"warning": "warn contains " + message + " if true\n",
			"failure": "# METADATA\n# title: T\n# custom: {reason: Weak, remedy: do it}\n" + `deny contains {"reason": "Weak", "message": "m", k: 1} if k := ` + message + "\n",
		} {
			f := newFixture(t, world{}, policyOf("p", rule, onSecrets))
			told := &toldEvents{}
			f.writeEvents(told, atOnce)
			response := f.Validate(t.Context(), secretReview(t, admissionv1.Update))
			text, err := json.Marshal(response)
			if err != nil {
				t.Fatal(err)
			}
			f.only(t)
			if !strings.Contains(string(text), redacted) || leaks(string(text)+f.records.String()+told.text) {
				t.Errorf("%s in a %s: got %s, record %s, event %s", name, kind, text, f.records.String(), told.text)
			}
		}
	}
}

// Nothing is left over of a value, however it is written.
func TestWholeValuesAreConcealed(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", "warn contains "+revealing["a PEM, quoted"]+" if true\n", onSecrets))
	response := f.Validate(t.Context(), secretReview(t, admissionv1.Create))
	if want := []string{`{"key":"` + redacted + `"}`}; !slices.Equal(response.Warnings, want) {
		t.Errorf("got %q, want %q", response.Warnings, want)
	}
}

type toldEvents struct{ text string }

func (e *toldEvents) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	e.text += fmt.Sprintf(note, args...)
}

func TestAuditsOfSecretsConceal(t *testing.T) {
	rule := denies("red", "TooRed", 403)
	rule = strings.NewReplacer("input.request.object.spec.name", "input.request.object.data.password", "input.request.object.spec.red", "input.request.object.data.password").Replace(rule)
	f := newFixture(t, world{}, policyOf("p", rule, onSecrets))
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(secretReview(t, admissionv1.Create).Request.Object.Raw, object); err != nil {
		t.Fatal(err)
	}
	audited, err := f.Audit(context.Background(), "p", schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, object)
	if err != nil || len(audited.Denials) != 1 || leaks(audited.Denials[0].Message) || !strings.Contains(audited.Denials[0].Message, redacted) {
		t.Errorf("got %+v, %v", audited, err)
	}
}

// No policy patches a Secret, whatever is granted, and neither response nor record has what it would have put there.
func TestSecretsAreNotPatched(t *testing.T) {
	for name, patch := range map[string]string{
		"a value of data":   `{"op": "add", "path": "/data/more", "value": "b3Blbi1zZXNhbWU="}`,
		"stringData":        `{"op": "add", "path": "/stringData", "value": {"x": "open-sesame"}}`,
		"a copy of a value": `{"op": "add", "path": "/metadata/labels", "value": {"was": input.request.object.data.password}}`,
		"something else":    `{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}`,
	} {
		f := newFixture(t, world{}, policyOf("p", "patch contains "+patch+" if true\n", onSecrets))
		response := f.Mutate(t.Context(), secretReview(t, admissionv1.Create))
		if response.Allowed || response.Patch != nil || !strings.Contains(response.Result.Message, "it patches secrets: no policy may patch it: it holds credentials") {
			t.Errorf("%s: the patch is %s, %+v", name, response.Patch, response.Result)
		}
		f.only(t)
		if record := f.records.String(); leaks(record) {
			t.Errorf("%s: the record is %s", name, record)
		}
	}
}

// What a policy says of other objects is told as it is.
func TestOnlySecretsAreConcealed(t *testing.T) {
	f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	if got := f.Validate(t.Context(), reviewOf(t, admissionv1.Create, `{"name": "password", "red": true}`)); got.Result.Message != "[p/TooRed] password has red" {
		t.Errorf("got %+v", got.Result)
	}
}
