package decision

import (
	stdjson "encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A request that Sallyport makes of decoded objects is to policies what the API server would send as text.
func TestReviewOfDecodedObjects(t *testing.T) {
	operation := v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "uid-a"},
		Spec: v1alpha1.VirtualMachineOperationSpec{
			Type: v1alpha1.OperationStop, Force: true, VirtualMachineName: "web-1", RequestedBy: &v1alpha1.Requester{Username: "ann"},
			RequestedAt: "2026-11-20T09:59:00.000000001Z",
		},
	}
	operation.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: time.Unix(7, 0)}}}
	machine := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "ns", UID: "uid-vm"},
		Spec:       v1alpha1.VirtualMachineSpec{RunPolicy: v1alpha1.RunPolicyManual},
		Status:     v1alpha1.VirtualMachineStatus{Phase: "Running"},
	}
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
