package runtime

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

// Earlier decides, before an object gets anything on its runtime, about what the runtime has for an object of the
// same namespace and name with another UID. The zero value means to create nothing.
type Earlier string

const (
	// TakeOver moves the owner mark to this object and changes nothing else. The former owner loses it.
	TakeOver Earlier = "TakeOver"
	// MakeAnew leaves it alone and creates a new one.
	MakeAnew Earlier = "MakeAnew"
)

// EarlierOf returns the decision in an object's annotation. It is ignored if it contains the UID of another object.
func EarlierOf(o metav1.Object) Earlier {
	switch uid := string(o.GetUID()); {
	case uid == "":
		return ""
	case o.GetAnnotations()[v1alpha1.AnnotationTakeOver] == uid:
		return TakeOver
	case o.GetAnnotations()[v1alpha1.AnnotationMakeAnew] == uid:
		return MakeAnew
	}
	return ""
}

// NewHeldBack returns the OwnedByAnother error of an object for which nothing is created, because the runtime has
// something for another object of its name. kind is its short name, such as svm.
func NewHeldBack(kind string, name types.NamespacedName, format string, args ...any) error {
	run := func(verb string) string {
		return commands.Line("kubectl", "sallyport", verb, kind, name.Name, "-n", name.Namespace)
	}
	return NewOwnedByAnother(nil, "%s is marked for %s with another UID, as after a restore, or in another cluster. To use it: %s. "+
		"To leave it alone and create another one: %s", fmt.Sprintf(format, args...), name, run("take-over"), run("make-anew"))
}
