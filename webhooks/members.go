package webhooks

import (
	"fmt"

	"github.com/go-json-experiment/json"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/webhooks/engine"
)

// members puts the members of a document into Go's terms. What is missing or null is as nothing, and of another type an error, as a
// decoder has it; but the text has been taken apart before, for the policies, and that is most of a decoder's work.
type members struct {
	of   engine.Value
	path string // of the document
	err  *error // the first one, of all that belong to one document
}

func (m members) fail(name string, err error) {
	if *m.err == nil {
		*m.err = fmt.Errorf("%s%s: %w", m.path, name, err)
	}
}

// raw gives the text of a member, nil if there is nothing.
func (m members) raw(name string) []byte {
	if v := m.of.Get(name); !v.IsNull() {
		return v.Raw()
	}
	return nil
}

func (m members) text(name string) string {
	v := m.of.Get(name)
	if !v.IsNull() && v.Raw()[0] != '"' {
		m.fail(name, fmt.Errorf("%.20s is not a string", v.Raw()))
	}
	return v.Text()
}

// object gives the members of a member.
func (m members) object(name string) members {
	v := m.of.Get(name)
	if !v.IsNull() && v.Raw()[0] != '{' {
		m.fail(name, fmt.Errorf("%.20s is not an object", v.Raw()))
	}
	return members{v, m.path + name + ".", m.err}
}

// user is in every request, and worth more than a decoder.
func (m members) user(name string) authenticationv1.UserInfo {
	o := m.object(name)
	u := authenticationv1.UserInfo{Username: o.text("username"), UID: o.text("uid")}
	if v := o.of.Get("groups"); !v.IsNull() {
		u.Groups = o.texts("groups", v)
	}
	o.decode("extra", &u.Extra)
	return u
}

func (m members) texts(name string, list engine.Value) []string {
	if list.Raw()[0] != '[' {
		m.fail(name, fmt.Errorf("%.20s is not a list", list.Raw()))
		return nil
	}
	elements := list.Elements()
	all := make([]string, 0, len(elements))
	for _, v := range elements {
		if !v.IsNull() && v.Raw()[0] != '"' {
			m.fail(name, fmt.Errorf("%.20s is not a string", v.Raw()))
		}
		all = append(all, v.Text())
	}
	return all
}

// truth gives nil for what is neither true nor false.
func (m members) truth(name string) *bool {
	raw := m.raw(name)
	if raw == nil {
		return nil
	}
	is := string(raw) == "true"
	if !is && string(raw) != "false" {
		m.fail(name, fmt.Errorf("%.20s is neither true nor false", raw))
	}
	return &is
}

// decode is for what is more than strings.
func (m members) decode(name string, into any) {
	if raw := m.raw(name); raw != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			m.fail(name, err)
		}
	}
}

func (m members) kind(name string) (kind metav1.GroupVersionKind) {
	o := m.object(name)
	return metav1.GroupVersionKind{Group: o.text("group"), Version: o.text("version"), Kind: o.text("kind")}
}

func (m members) resource(name string) (resource metav1.GroupVersionResource) {
	o := m.object(name)
	return metav1.GroupVersionResource{Group: o.text("group"), Version: o.text("version"), Resource: o.text("resource")}
}

func (m members) request() *admissionv1.AdmissionRequest {
	r := &admissionv1.AdmissionRequest{
		UID: types.UID(m.text("uid")), Kind: m.kind("kind"), Resource: m.resource("resource"), SubResource: m.text("subResource"),
		RequestSubResource: m.text("requestSubResource"), Name: m.text("name"), Namespace: m.text("namespace"),
		Operation: admissionv1.Operation(m.text("operation")), Object: runtime.RawExtension{Raw: m.raw("object")},
		UserInfo: m.user("userInfo"), DryRun: m.truth("dryRun"), OldObject: runtime.RawExtension{Raw: m.raw("oldObject")}, Options: runtime.RawExtension{Raw: m.raw("options")},
	}
	if m.raw("requestKind") != nil {
		kind := m.kind("requestKind")
		r.RequestKind = &kind
	}
	if m.raw("requestResource") != nil {
		resource := m.resource("requestResource")
		r.RequestResource = &resource
	}
	return r
}
