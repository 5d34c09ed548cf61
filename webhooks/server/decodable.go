package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
)

// undecodable denies a request if the Go type of its kind cannot decode the object; it returns nil for other kinds and objects. One
// such object breaks every client's list of the kind, so this check does not depend on schemas or policies. An object that is
// stored like that already may be changed, so that it can be repaired.
func undecodable(r *decision.Review) *admissionv1.AdmissionResponse {
	is := r.Request
	kind := slices.IndexFunc(v1alpha1.Kinds, func(k v1alpha1.Kind) bool {
		return k.GroupKind() == schema.GroupKind{Group: is.Kind.Group, Kind: is.Kind.Kind}
	})
	if kind < 0 || is.SubResource != "" || is.Object.Raw == nil {
		return nil
	}
	field, err := checkDecoding(is.Object.Raw, &v1alpha1.Kinds[kind])
	if err == nil {
		return nil
	}
	if is.OldObject.Raw != nil {
		if _, before := checkDecoding(is.OldObject.Raw, &v1alpha1.Kinds[kind]); before != nil {
			return nil
		}
	}
	name := is.Kind.Kind + " " + r.Subject().Name
	return &admissionv1.AdmissionResponse{UID: is.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s cannot be decoded: %s: %v. Correct the field and send the request again", name, field, err),
		Details: &metav1.StatusDetails{Name: r.Subject().Name, Group: is.Kind.Group, Kind: is.Kind.Kind, Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: err.Error()},
		}},
	}}
}

// checkDecoding returns why an object cannot be decoded, and in which field; nil if it can.
func checkDecoding(text []byte, kind *v1alpha1.Kind) (field string, err error) {
	err = json.Unmarshal(text, reflect.New(reflect.TypeOf(kind.Object).Elem()).Interface(), json.WithUnmarshalers(boundedQuantities))
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return "", err
	}
	for token := range semantic.JSONPointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			field += "[" + token + "]"
		} else {
			field += "." + token
		}
	}
	if semantic.Err != nil {
		err = semantic.Err
	}
	return strings.TrimPrefix(field, "."), err
}

// longestQuantity is above what schemas admit. Decoding a quantity with a longer exponent takes minutes.
const longestQuantity, longestExponent = len(`"999999999999999999m"`), len(`-18"`)

var boundedQuantities = json.UnmarshalFunc(func(text []byte, q *resource.Quantity) error {
	_, exponent, _ := bytes.Cut(bytes.ToLower(text), []byte("e"))
	if len(text) > longestQuantity || len(exponent) > longestExponent {
		return errors.New("a quantity has at most 18 digits, and an exponent of at most two")
	}
	return q.UnmarshalJSON(text)
})
