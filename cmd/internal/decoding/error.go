package decoding

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/commands"
)

// Error reports that an object does not decode into its Go type.
type Error struct {
	schema.GroupVersionKind
	types.NamespacedName
	UID types.UID
	// Field is the path of the first field that does not decode. It is empty if the object as a whole does not decode.
	Field string
	// Err is the error of the decoder.
	Err error
}

// Error returns a message with the object and the field.
func (e *Error) Error() string {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	field := ""
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Sprintf("%s %s cannot be decoded: %s%v", e.Kind, name, field, e.Err)
}

// Unwrap returns the error of the decoder.
func (e *Error) Unwrap() error { return e.Err }

// WayOut returns the commands that correct or delete the object.
func (e *Error) WayOut() string {
	object := commands.Object(strings.ToLower(e.Kind)+"."+e.Group, e.Namespace, e.Name)
	run := func(verb string, flags ...string) string {
		return "`" + commands.Line(slices.Concat([]string{"kubectl", verb}, object, flags)...) + "`"
	}
	edit := run("edit")
	if e.Field == "status" || strings.HasPrefix(e.Field, "status.") {
		edit = run("edit", "--subresource=status")
	}
	return fmt.Sprintf("to correct it, run %s; to delete it without deleting what it represents, run %s and %s",
		edit, run("delete", "--wait=false"), run("patch", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`))
}

func (e *Error) set(path []string, err error) {
	if err == nil {
		return
	}
	e.Err = err
	e.Field = strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// Reason is the reason of the Status that a client gets instead of an object that does not decode.
const Reason metav1.StatusReason = "Undecodable"

func (e *Error) status() []byte {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: Reason, Code: http.StatusNotAcceptable,
		Message: e.Error() + "; " + e.WayOut(), Details: &metav1.StatusDetails{Group: e.Group, Kind: e.Kind, Name: e.Name, UID: e.UID},
	})
	if err != nil {
		panic(err) // a Status always encodes
	}
	return text
}
