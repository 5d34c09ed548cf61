package vsphere_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/vsphere"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/step"
)

// A vCenter is restored under another ID at the address that a session was opened for before any ID was known: it is used once that ID is asked for.
func TestAnotherAtTheSameAddress(t *testing.T) {
	s := step.T{T: t}
	const before, after = "5f8a6a8e-0000-4000-8000-000000000001", "5f8a6a8e-0000-4000-8000-000000000002"
	first, err := vcsim.Start(vcsim.Options{InstanceUUID: before})
	s.Must(err)
	address, err := url.Parse(first.URL())
	s.Must(err)
	sessions := vsphere.NewSessions(nil, nil, nil, func(context.Context, runtime.Change) {})
	defer sessions.Close()
	connect := func(id string) (string, error) {
		password, _ := first.User().Password()
		about, err := sessions.Connect(t.Context(), "lab", vsphere.Connection{
			URL: first.URL(), CABundle: string(first.CABundle()), Username: first.User().Username(), Password: runtime.Secret(password), InstanceUUID: id,
		})
		return about.InstanceUUID, err
	}
	if got, err := connect(""); got != before || err != nil {
		t.Errorf("got %s, error %v", got, err)
	}

	first.Close()
	second, err := vcsim.Start(vcsim.Options{InstanceUUID: after, Address: address.Host})
	s.Must(err)
	t.Cleanup(second.Close)
	second.SetUser(first.User())
	if _, err := connect(before); !hasOther(err) {
		t.Errorf("the ID of before: got error %v", err)
	}
	if got, err := connect(after); got != after || err != nil {
		t.Errorf("the ID of now: got %s, error %v", got, err)
	}
}

// Through the sessions a machine is judged by the tenants of its vCenter, also on the datastore that its storage policy has chosen.
func TestSessionsJudgeWhatIsMade(t *testing.T) {
	w := newWorld(t)
	var asked []v1alpha1.InventoryPath
	sessions := w.connected(vsphere.NewSessions(func(_ context.Context, vm *v1alpha1.VirtualMachine) ([]v1alpha1.InventoryPath, error) {
		asked = append(asked, cloneOf(runtime.MachineOf(vm)).Datastore)
		return []v1alpha1.InventoryPath{"/DC0/datastore"}, nil
	}, nil, nil, func(context.Context, runtime.Change) {}))
	m := w.cloned("web")
	cloneOf(m).Datastore, cloneOf(m).StoragePolicy = "", "vSAN Default Storage Policy"
	vm := &v1alpha1.VirtualMachine{Spec: *m.Spec}
	vm.Namespace, vm.Name, vm.UID = m.Namespace, m.Name, m.UID
	client, err := sessions.Runtime(t.Context(), vm)
	w.Must(err)
	_, err = client.Ensure(t.Context(), m)
	w.Must(err)
	// before the call, about all places but the datastore, and about the chosen one
	if diff := cmp.Diff([]v1alpha1.InventoryPath{"", "", "/DC0/datastore/LocalDS_0"}, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func hasOther(err error) bool {
	_, is := errors.AsType[*runtime.Other](err)
	return is
}
