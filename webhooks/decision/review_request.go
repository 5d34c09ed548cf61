package decision

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/webhooks/engine"
)

// requestIn returns the request in a document. It reads member by member: a decoder would read all of the text again, most of which are the
// objects, which stay text.
func requestIn(document engine.Value) (*admissionv1.AdmissionRequest, error) {
	if !document.IsNull() && !document.IsObject() {
		return nil, errors.New("not an object")
	}
	var err error
	in := fields{document, "", &err}
	request := &admissionv1.AdmissionRequest{
		UID: types.UID(in.text("uid")), Operation: admissionv1.Operation(in.text("operation")), Name: in.text("name"), Namespace: in.text("namespace"),
		Kind: *in.kind("kind"), Resource: *in.resource("resource"), SubResource: in.text("subResource"),
		RequestSubResource: in.text("requestSubResource"), UserInfo: in.below("userInfo").user(),
		Object: in.object("object"), OldObject: in.object("oldObject"), Options: in.object("options"),
	}
	if in.has("requestKind") {
		request.RequestKind = in.kind("requestKind")
	}
	if in.has("requestResource") {
		request.RequestResource = in.resource("requestResource")
	}
	if in.has("dryRun") {
		request.DryRun = new(bool)
		*request.DryRun = in.get("dryRun", engine.Value.IsBoolean).IsTrue()
	}
	return request, err
}

// fields reads the members of an object, of which null is the same as none.
type fields struct {
	of   engine.Value
	path string
	err  *error // about the first member of the wrong type
}

func (f fields) has(name string) bool { return !f.of.Get(name).IsNull() }

// get returns a member of a type.
func (f fields) get(name string, is func(engine.Value) bool) engine.Value {
	v := f.of.Get(name)
	f.check(name, v.IsNull() || is(v))
	return v
}

func (f fields) check(name string, ok bool) {
	if !ok && *f.err == nil {
		*f.err = fmt.Errorf("%s%s has the wrong type", f.path, name)
	}
}

func (f fields) below(name string) fields {
	return fields{f.get(name, engine.Value.IsObject), f.path + name + ".", f.err}
}

func (f fields) text(name string) string { return f.get(name, engine.Value.IsText).Text() }

func (f fields) texts(name string) (all []string) {
	for _, v := range f.get(name, engine.Value.IsList).Elements() {
		f.check(name, v.IsText())
		all = append(all, v.Text())
	}
	return all
}

func (f fields) kind(name string) *metav1.GroupVersionKind {
	in := f.below(name)
	return &metav1.GroupVersionKind{Group: in.text("group"), Version: in.text("version"), Kind: in.text("kind")}
}

func (f fields) resource(name string) *metav1.GroupVersionResource {
	in := f.below(name)
	return &metav1.GroupVersionResource{Group: in.text("group"), Version: in.text("version"), Resource: in.text("resource")}
}

func (f fields) user() authenticationv1.UserInfo {
	user := authenticationv1.UserInfo{Username: f.text("username"), UID: f.text("uid"), Groups: f.texts("groups")}
	extra := f.below("extra")
	extra.of.Each(func(name string, _ engine.Value) {
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[name] = extra.texts(name)
	})
	return user
}

func (f fields) object(name string) (is runtime.RawExtension) {
	if v := f.of.Get(name); !v.IsNull() {
		is.Raw = v.Raw()
	}
	return is
}
