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

// Error is an object that does not decode into its Go type.
type Error struct {
	schema.GroupVersionKind
	types.NamespacedName
	UID types.UID
	// Field is the first field that does not decode, empty if it is not a single one.
	Field string
	// Err is what the decoder says of it.
	Err error
}

// Error names object and field.
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

// Unwrap gives what the decoder says.
func (e *Error) Unwrap() error { return e.Err }

// WayOut is the commands that correct the object or delete it.
func (e *Error) WayOut() string {
	object := commands.Object(strings.ToLower(e.Kind)+"."+e.Group, e.Namespace, e.Name)
	run := func(verb string, flags ...string) string {
		return "`" + commands.Line(slices.Concat([]string{"kubectl", verb}, object, flags)...) + "`"
	}
	edit := run("edit")
	if e.Field == "status" || strings.HasPrefix(e.Field, "status.") {
		edit = run("edit", "--subresource=status")
	}
	return fmt.Sprintf("to correct it, run %s; to delete it, and leave alone what it stands for, run %s and %s",
		edit, run("delete", "--wait=false"), run("patch", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`))
}

// at takes down at which path there is what error.
func (e *Error) at(path []string, err error) {
	if err == nil {
		return
	}
	e.Err = err
	e.Field = strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// Reason is that of the status that a client gets in place of an object that does not decode.
const Reason metav1.StatusReason = "Undecodable"

// status is what a client gets in place of the object.
func (e *Error) status() []byte {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: Reason, Code: http.StatusNotAcceptable,
		Message: e.Error() + "; " + e.WayOut(), Details: &metav1.StatusDetails{Group: e.Group, Kind: e.Kind, Name: e.Name, UID: e.UID},
	})
	if err != nil {
		panic(err) // there is nothing in it but text
	}
	return text
}
