package vsphere_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

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

func hasOther(err error) bool {
	_, is := errors.AsType[*runtime.Other](err)
	return is
}
