package server

import (
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Limits for the JSON of metadata (without managedFields) and spec of an object of Sallyport's kinds: every replica caches all of
// them. A pool names up to 1,000 members to remove.
const (
	maxObjectBytes = 64 << 10
	maxPoolBytes   = 256 << 10
)

// oversized denies a request whose object is too large, unless the old object was at least as large; nil for other kinds.
// RegoPolicies have their own limit.
func oversized(r *decision.Review) *admissionv1.AdmissionResponse {
	is := r.Request
	kind := slices.IndexFunc(v1alpha1.Kinds, func(k v1alpha1.Kind) bool {
		return k.GroupKind() == schema.GroupKind{Group: is.Kind.Group, Kind: is.Kind.Kind}
	})
	if kind < 0 || v1alpha1.Kinds[kind].Cluster || is.SubResource != "" {
		return nil
	}
	most := maxObjectBytes
	if is.Kind.Kind == "VirtualMachinePool" {
		most = maxPoolBytes
	}
	if r.Bytes <= most { // nearly every review
		return nil
	}
	size, field := sizeOf(r.Document.Get("object"))
	if before, _ := sizeOf(r.Document.Get("oldObject")); size <= max(most, before) {
		return nil
	}
	name := r.Subject().Name
	return &admissionv1.AdmissionResponse{UID: is.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s %s is too large: its metadata and spec have %d bytes of JSON, the limit is %d. The largest field is %s. "+
			"Shorten it; kubectl apply --server-side stores no copy of the object in an annotation", is.Kind.Kind, name, size, most, field),
		Details: &metav1.StatusDetails{Name: name, Group: is.Kind.Group, Kind: is.Kind.Kind, Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: "too large"},
		}},
	}}
}

// sizeOf returns the bytes of an object's metadata and spec, and the largest of their fields.
func sizeOf(object engine.Value) (size int, largest string) {
	most := 0
	for _, part := range []string{"metadata", "spec"} {
		object.Get(part).Each(func(name string, v engine.Value) {
			if part == "metadata" && name == "managedFields" {
				return
			}
			bytes := v.Size() + len(name)
			if size += bytes; bytes > most {
				most, largest = bytes, part+"."+name
			}
		})
	}
	return size, largest
}
