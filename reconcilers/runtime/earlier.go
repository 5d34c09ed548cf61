package runtime

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
)

// Earlier is what is done about what a runtime has for an object of the same namespace and name with another UID, before something is
// made. It counts only as long as the object has nothing on its runtime. The zero value makes nothing.
type Earlier string

const (
	// TakeOver gives it the marker of this object, as it is. Its former owner has it no more.
	TakeOver Earlier = "TakeOver"
	// MakeAnew leaves it alone, and makes another one.
	MakeAnew Earlier = "MakeAnew"
)

// EarlierOf returns what the annotations of an object say about it. One with the UID of another object says nothing.
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

// NewHeldBack makes the OwnedByAnother error for an object that nothing is made for, because of what the runtime has for another one of
// its name. Kind is its short name, such as svm.
func NewHeldBack(kind string, name types.NamespacedName, format string, args ...any) error {
	run := func(verb string) string {
		return commands.Line("kubectl", "sallyport", verb, kind, name.Name, "-n", name.Namespace)
	}
	return NewOwnedByAnother(nil, "%s is marked for %s with another UID, as after a restore, or in another cluster. To use it: %s. "+
		"To leave it alone and create another one: %s", fmt.Sprintf(format, args...), name, run("take-over"), run("make-anew"))
}
