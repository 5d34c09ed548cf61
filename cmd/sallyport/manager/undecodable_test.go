package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/decoding"
)

// An object is told of once, however often a watch has it, and again only after it could be decoded.
func TestUndecodableObjectsAreToldOnce(t *testing.T) {
	u, err := newUndecodable()
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	u.events = recorder
	bad := &decoding.Error{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("VirtualDisk"), NamespacedName: types.NamespacedName{Namespace: "team", Name: "data"},
		UID: "u", Field: "status.freeSince", Err: errors.New("bad time"),
	}
	counted := func(want string) {
		t.Helper()
		expected := `
# HELP sallyport_undecodable_objects Objects of a kind that do not decode into its Go type and are left out. Their events say why.
# TYPE sallyport_undecodable_objects gauge
`
		for i := range v1alpha1.Kinds {
			kind, count := v1alpha1.Kinds[i].Name, "0"
			if kind == "VirtualDisk" {
				count = want
			}
			expected += `sallyport_undecodable_objects{kind="` + kind + `"} ` + count + "\n"
		}
		if err := testutil.CollectAndCompare(u, strings.NewReader(expected)); err != nil {
			t.Error(err)
		}
	}
	u.left(bad)
	u.left(bad)
	counted("1")
	u.fine("u")
	u.fine("other")
	counted("0")
	u.left(bad)
	if n := len(recorder.Events); n != 2 {
		t.Errorf("%d events", n)
	}
	event := <-recorder.Events
	for _, text := range []string{"Warning Undecodable", "VirtualDisk team/data cannot be decoded: status.freeSince: bad time", "kubectl edit virtualdisk.sallyport.dev/data -n team --subresource=status"} {
		if !strings.Contains(event, text) {
			t.Errorf("%s: without %s", event, text)
		}
	}
}
