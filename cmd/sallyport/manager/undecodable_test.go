package manager

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

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

// A replica that leaves objects out is ready, and says of which kinds they are if it is asked.
func TestReadinessNamesKindsWithUndecodableObjects(t *testing.T) {
	u, err := newUndecodable()
	if err != nil {
		t.Fatal(err)
	}
	u.events = events.NewFakeRecorder(10)
	probes := http.StripPrefix("/readyz", &healthz.Handler{Checks: map[string]healthz.Checker{"undecodable": u.ready}})
	says := func(path string) (int, string) {
		w := httptest.NewRecorder()
		probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	const detail = "/readyz/undecodable"
	if code, text := says(detail); code != http.StatusOK {
		t.Errorf("without such objects: %d %s", code, text)
	}
	for uid, kind := range map[types.UID]string{"a": "VirtualDisk", "b": "VirtualDisk", "c": "VirtualMachine"} {
		u.left(&decoding.Error{
			GroupVersionKind: v1alpha1.GroupVersion.WithKind(kind), NamespacedName: types.NamespacedName{Namespace: "team", Name: "data"},
			UID: uid, Err: errors.New("bad"),
		})
	}
	for _, path := range []string{"/readyz", "/readyz/", "/readyz?verbose"} {
		if code, text := says(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := says(detail); code == http.StatusOK || !strings.Contains(text, "VirtualDisk: 2, VirtualMachine: 1") || strings.Contains(text, "team") {
		t.Errorf("%d %s", code, text)
	}
	for _, uid := range []types.UID{"a", "b", "c"} {
		u.fine(uid)
	}
	if code, text := says(detail); code != http.StatusOK {
		t.Errorf("when all can be decoded: %d %s", code, text)
	}
}
