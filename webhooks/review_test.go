package webhooks

import (
	stdjson "encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/depth"
)

const fullReview = `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "r-1",
	"kind": {"group": "a", "version": "v1", "kind": "A"}, "resource": {"group": "b", "version": "v2", "resource": "bs"}, "subResource": "scale",
	"requestKind": {"group": "c", "version": "v3", "kind": "C"}, "requestResource": {"group": "d", "version": "v4", "resource": "ds"},
	"requestSubResource": "status", "name": "na\u006de", "namespace": "ns", "operation": "UPDATE",
	"userInfo": {"username": "ann", "uid": "u", "groups": ["g", "h"], "extra": {"k": ["v"]}},
	"object": {"spec": {"x": [1, {"y": null}]}}, "oldObject": {"spec": "\"x"}, "dryRun": true, "options": {"kind": "UpdateOptions"}}}`

// mangled gives a text with one thing in it replaced, left out, or repeated.
func mangled(r *rand.Rand, text string) string {
	pieces := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" ,:\n\t", c) })
	for range 1 + r.IntN(3) {
		old := pieces[r.IntN(len(pieces))]
		others := []string{"null", "true", "7", `""`, `"x"`, "{}", "[]", "", `"uid"`, `{"group": 1}`, "\xff", pieces[r.IntN(len(pieces))], old + "," + old}
		text = strings.Replace(text, old, others[r.IntN(len(others))], 1)
	}
	return text
}

// A review is taken for what a decoder takes it for, and refused where it is.
func TestReviewsAreDecodedAsByADecoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	counts := map[bool]int{}
	reviews := depth.Of(4_000, 20_000)
	for i := range reviews {
		body := fullReview
		if i > 0 {
			body = mangled(r, body)
		}
		var want admissionv1.AdmissionReview
		err := json.Unmarshal([]byte(body), &want)
		is := err == nil && want.Kind == "AdmissionReview" && want.APIVersion == "admission.k8s.io/v1" && want.Request != nil && want.Request.UID != ""
		counts[is]++
		got, err := Decode([]byte(body))
		if is != (err == nil) {
			t.Fatalf("got %v, want an error: %t, for\n%s", err, !is, body)
		}
		if !is {
			continue
		}
		if diff := cmp.Diff(want.Request, got.Request); diff != "" {
			t.Fatalf("of %s\nwant -, got +\n%s", body, diff)
		}
		text, err := got.Document.MarshalJSON()
		if err != nil || len(text) == 0 {
			t.Fatalf("the document of %s: %v", body, err)
		}
	}
	if counts[true] < reviews/20 || counts[false] < reviews/20 {
		t.Errorf("too few of %v", counts)
	}
}

// A request that Sallyport makes of decoded objects is to policies what the API server would send as text.
func TestReviewOfDecodedObjects(t *testing.T) {
	operation := svmop("a", v1alpha1.OperationStop, true)
	operation.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: time.Unix(7, 0)}}}
	machine := svm("Running")
	operation.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachineOperation"))
	machine.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachine"))
	machine.CreationTimestamp = metav1.Time{Time: time.Unix(9, 0)}
	user := authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	made, err := unstructuredOf(&operation)
	if err != nil {
		t.Fatal(err)
	}
	old, err := unstructuredOf(machine)
	if err != nil {
		t.Fatal(err)
	}
	no := false
	request := func() *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			UID: "r", Kind: metav1.GroupVersionKind{Group: "g", Version: "v", Kind: "K"}, Resource: metav1.GroupVersionResource{Version: "v", Resource: "ks"},
			RequestKind: &metav1.GroupVersionKind{Kind: "K"}, SubResource: "scale", Name: "a", Namespace: "ns", Operation: admissionv1.Update, UserInfo: user, DryRun: &no,
		}
	}
	asText, asObjects := request(), request()
	for _, one := range []struct {
		text, object *runtime.RawExtension
		typed        any
		is           *unstructured.Unstructured
	}{{&asText.Object, &asObjects.Object, &operation, made}, {&asText.OldObject, &asObjects.OldObject, machine, old}} {
		if one.text.Raw, err = stdjson.Marshal(one.typed); err != nil {
			t.Fatal(err)
		}
		one.object.Object = one.is
	}
	text, err := stdjson.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Request: asText})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewReview(asObjects)
	if err != nil || !got.Document.Equal(want.Document) || !got.createdByApply() || string(got.objectText()) == "" {
		is, _ := got.Document.MarshalJSON()
		t.Errorf("got  %s, %v\nwant %s", is, err, text)
	}
}
