package manager

import (
	"reflect"
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// each gives a value for each field of a struct of pointers, with only that field set, by its name in JSON.
func each[T any]() map[string]T {
	all := map[string]T{}
	for i := range reflect.TypeFor[T]().NumField() {
		var one T
		field := reflect.TypeFor[T]().Field(i)
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all[name] = one
	}
	return all
}

// Calls of a runtime that has no name of its own would count as those of another one.
func TestEveryRuntimeHasItsName(t *testing.T) {
	for name, of := range each[v1alpha1.VirtualMachineRuntime]() {
		if got := kindOfMachine(machineOn(of)); got != name {
			t.Errorf("a machine of runtime %s counts as %s", name, got)
		}
	}
	machines := each[v1alpha1.VirtualMachineRuntime]()
	for name, of := range each[v1alpha1.VirtualDiskRuntime]() {
		disk := &v1alpha1.VirtualDisk{Spec: v1alpha1.VirtualDiskSpec{Runtime: of}}
		if got := kindOfDisk(disk); got != name {
			t.Errorf("a disk of runtime %s counts as %s", name, got)
		}
		for other, machine := range machines {
			if got := of.Beside(&machine); got != (other == name) {
				t.Errorf("a disk of runtime %s can be attached to a machine of runtime %s: %v", name, other, got)
			}
		}
	}
}
