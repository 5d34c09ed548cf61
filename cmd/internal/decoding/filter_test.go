package decoding_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/decoding"
)

// kinds is the scheme of the filter.
func kinds(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// clientOf returns a client whose API server always sends the same response.
func clientOf(t testing.TB, f decoding.Filter, answer string) client.WithWatch {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.Wrap(f.Wrap)
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range v1alpha1.Kinds {
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if k.Name == "RegoPolicy" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(v1alpha1.GroupVersion.WithKind(k.Name), scope)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.NewWithWatch(config, client.Options{Scheme: kinds(t), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// machine returns the JSON of a VirtualMachine with additional fields in its spec.
func machine(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"sallyport.dev/v1alpha1","kind":"VirtualMachine",`+
		`"metadata":{"namespace":"team-a","name":%[1]q,"uid":"uid-%[1]s","managedFields":[{"manager":"kubectl"}]},"spec":{"cpu":2%[2]s}}`, name, spec)
}

// disk returns the fields of a VirtualMachine with a disk of a size.
func disk(size string) string {
	return fmt.Sprintf(`,"runtime":{"vsphere":{"clone":{"disks":[{"size":"1Gi"},{"size":%q}]}}}`, size)
}

func listOf(items ...string) string {
	return `{"apiVersion":"sallyport.dev/v1alpha1","items":[` + strings.Join(items, ",") + `],"kind":"VirtualMachineList","metadata":{"resourceVersion":"7"}}` + "\n"
}

// deep is a JSON value that is nested too deeply for JSON libraries.
var deep = strings.Repeat(`{"f:x":`, 9995) + "{}" + strings.Repeat("}", 9995)

// deepFields is a VirtualMachine with managedFields that are too deep to be decoded in a list.
func deepFields(name string) string {
	return strings.Replace(machine(name, ""), `{"manager":"kubectl"}`, `{"manager":"x","fieldsV1":`+deep+`}`, 1)
}

// told records the calls of a filter.
type told struct{ left, fine []string }

func (h *told) filter(t testing.TB) decoding.Filter {
	return decoding.Filter{
		Scheme: kinds(t), DropManagedFields: true, Watches: true,
		Left: func(e *decoding.Error) { h.left = append(h.left, e.Error()) },
		Fine: func(uid types.UID) { h.fine = append(h.fine, string(uid)) },
	}
}

// An object that does not decode is left out of a list; the others are listed (controller-runtime#1032, argo-workflows#3677).
func TestListsLeaveOutWhatCannotBeDecoded(t *testing.T) {
	var h told
	hang := `"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z"},{"lastTransitionTime":[]}]`
	bad := []string{
		machine("format", disk("1e1.5")), machine("hangs", disk("1e-2000000000")), machine("long", `,"memory":"`+strings.Repeat("0", 1<<20)+`8Gi"`),
		strings.Replace(machine("time", ""), `"spec"`, `"status":{`+hang+`},"spec"`, 1), machine("deep", `,"runtime":`+deep),
		machine("number", `,"nodeName":1`), machine("list", `,"blockDeviceRefs":{"kind":"x"}`),
	}
	c := clientOf(t, h.filter(t), listOf(append(append([]string{bad[0], machine("a", "")}, bad[1:]...), deepFields("b"))...))
	var list v1alpha1.VirtualMachineList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, vm := range list.Items {
		names = append(names, vm.Name)
		if vm.ManagedFields != nil {
			t.Errorf("%s has managed fields", vm.Name)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" || list.ResourceVersion != "7" {
		t.Errorf("resource version %q: %s", list.ResourceVersion, diff)
	}
	fields := []string{
		"format cannot be decoded: spec.runtime.vsphere.clone.disks[1].size: quantities must match the regular expression",
		"hangs cannot be decoded: spec.runtime.vsphere.clone.disks[1].size: the quantity has too many digits",
		"long cannot be decoded: spec.memory: the quantity has too many digits",
		"time cannot be decoded: status.conditions[1].lastTransitionTime: json: cannot unmarshal array",
		"deep cannot be decoded: objects or lists are nested more than 200 levels deep",
		"number cannot be decoded: spec.nodeName: json: cannot unmarshal number",
		"list cannot be decoded: spec.blockDeviceRefs: json: cannot unmarshal object",
	}
	if len(h.left) != len(fields) {
		t.Fatalf("left out: %q", h.left)
	}
	for i, want := range fields {
		if !strings.HasPrefix(h.left[i], "VirtualMachine team-a/"+want) {
			t.Errorf("got %s, want %s", h.left[i], want)
		}
	}
	if diff := cmp.Diff([]string{"uid-a", "uid-b"}, h.fine); diff != "" {
		t.Error(diff)
	}
}

// A live read of an object that does not decode is an error that names the object and the field.
func TestReadsSayWhatCannotBeDecoded(t *testing.T) {
	bad := machine("format", disk("1e1.5"))
	for name, c := range map[string]struct {
		answer string
		read   func(client.WithWatch) error
	}{
		"get": {bad, func(c client.WithWatch) error {
			return c.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "format"}, &v1alpha1.VirtualMachine{})
		}},
		"list": {listOf(machine("a", ""), bad), func(c client.WithWatch) error { return c.List(t.Context(), &v1alpha1.VirtualMachineList{}) }},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.read(clientOf(t, decoding.Filter{Scheme: kinds(t)}, c.answer))
			if apierrors.ReasonForError(err) != decoding.Reason {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{
				"VirtualMachine team-a/format cannot be decoded: spec.runtime.vsphere.clone.disks[1].size: quantities must match",
				"`kubectl edit virtualmachine.sallyport.dev/format -n team-a`", "`kubectl patch virtualmachine.sallyport.dev/format -n team-a --type=merge",
			} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %s", err, want)
				}
			}
		})
	}
}

// Clients of unstructured objects, such as policies, get all objects, without values that are nested too deeply.
func TestUnstructuredObjectsAreComplete(t *testing.T) {
	for name, f := range map[string]decoding.Filter{"with types": {Scheme: kinds(t)}, "without": {DropManagedFields: true}} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, f, listOf(machine("format", disk("1e1.5")), deepFields("a"), machine("deep", `,"runtime":`+deep)))
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachineList"))
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].GetName())
			}
			if diff := cmp.Diff([]string{"format", "a", "deep"}, names); diff != "" {
				t.Error(diff)
			}
			if kept := list.Items[0].GetManagedFields() != nil; kept == f.DropManagedFields {
				t.Errorf("managed fields are kept: %v", kept)
			}
			if cpu, _, _ := unstructured.NestedInt64(list.Items[2].Object, "spec", "cpu"); cpu != 2 {
				t.Errorf("got %v", list.Items[2].Object["spec"])
			}
		})
	}
}

// Into returns the same errors as the filter.
func TestInto(t *testing.T) {
	for size, field := range map[string]string{"1Gi": "", "1e-2000000000": "spec.runtime.vsphere.clone.disks[1].size"} {
		from, vm := &unstructured.Unstructured{}, &v1alpha1.VirtualMachine{}
		if err := from.UnmarshalJSON([]byte(machine("a", disk(size)))); err != nil {
			t.Fatal(err)
		}
		err := decoding.Into(kinds(t), from, vm)
		found := new(decoding.Error)
		switch {
		case field == "" && (err != nil || vm.Name != "a"):
			t.Errorf("got %v, %v", vm.Name, err)
		case field != "" && (!errors.As(err, &found) || found.Field != field):
			t.Errorf("got %v", err)
		}
	}
}

// A watch continues after an object that no longer decodes, which it reports as deleted.
func TestWatchesLeaveOutWhatCannotBeDecoded(t *testing.T) {
	event := func(kind, object string) string { return `{"type":"` + kind + `","object":` + object + "}\n" }
	bad := machine("b", disk("1e1.5"))
	answer := event("ADDED", bad) + event("ADDED", machine("a", "")) + event("ADDED", machine("b", "")) + event("MODIFIED", deepFields("a")) +
		event("MODIFIED", bad) + event("MODIFIED", machine("b", disk("2Gi"))) + event("DELETED", bad) +
		event("BOOKMARK", `{"apiVersion":"sallyport.dev/v1alpha1","kind":"VirtualMachine","metadata":{"resourceVersion":"9"}}`) +
		event("ERROR", `{"apiVersion":"v1","kind":"Status","code":410}`)
	var h told
	got := watched(t, clientOf(t, h.filter(t), answer))
	want := []string{"ADDED a true", "ADDED b true", "MODIFIED a true", "DELETED b false", "MODIFIED b true", "DELETED b false", "BOOKMARK  false", "ERROR"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(h.left) != 3 {
		t.Errorf("left out: %q", h.left)
	}

	// Without Watches, the watch ends with an error: a client that waits for this object must not take it for deleted.
	f := h.filter(t)
	f.Watches = false
	if got := watched(t, clientOf(t, f, event("MODIFIED", machine("b", ""))+event("MODIFIED", bad))); !slices.Equal(got, []string{"MODIFIED b true", "ERROR"}) {
		t.Errorf("got %q", got)
	}
}

func watched(t *testing.T, c client.WithWatch) (events []string) {
	t.Helper()
	w, err := c.Watch(t.Context(), &v1alpha1.VirtualMachineList{})
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		text := string(e.Type)
		if vm, is := e.Object.(*v1alpha1.VirtualMachine); is {
			text += fmt.Sprintf(" %s %v", vm.Name, vm.Spec.CPU != nil)
		}
		events = append(events, text)
	}
	return events
}

// A policy that does not decode is reduced to the part that does. If it were left out, it would look deleted.
func TestReducedObjects(t *testing.T) {
	policy := func(name, more string) string {
		return fmt.Sprintf(`{"apiVersion":"sallyport.dev/v1alpha1","kind":"RegoPolicy","metadata":{"name":%q},"spec":{"package":"p"%s`, name, more)
	}
	for name, c := range map[string]struct{ text, want string }{
		"status":     {policy("a", `},"status":{"reportedAt":"2026-01-01t00:00:00z"}}`), "p"},
		"spec":       {policy("a", `,"timeoutMilliseconds":"x"},"status":{"activeRevision":"r"}}`), ""},
		"parameters": {policy("a", `,"parameters":`+deep+`}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var h told
			f := h.filter(t)
			f.Reduce = func(kind string) bool { return kind == "RegoPolicy" }
			policy := &v1alpha1.RegoPolicy{}
			if err := clientOf(t, f, c.text).Get(t.Context(), client.ObjectKey{Name: "a"}, policy); err != nil {
				t.Fatal(err)
			}
			if policy.Name != "a" || policy.Spec.Package != c.want || policy.Status.ActiveRevision != "" || len(h.left) != 1 {
				t.Errorf("got %+v, told %q", policy, h.left)
			}
		})
	}
}

// Responses that are not objects pass unchanged.
func TestOtherAnswers(t *testing.T) {
	for name, answer := range map[string]string{"list": `[1, {"a": 2}]`, "empty": ``, "items of others": `{"items":[1,"a",{"b":[]}],"more":0}`} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			client := http.Client{Transport: decoding.Filter{Scheme: kinds(t)}.Wrap(http.DefaultTransport)}
			response, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err != nil || string(got) != answer || response.Body.Close() != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Closing a watch ends its reader, and a truncated response is an error.
func TestAnswersEnd(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+machine("a", "")+"}\n"+`{"type":`)
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Get("ends") != "" {
			return
		}
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	transport := decoding.Filter{Scheme: kinds(t)}.Wrap(http.DefaultTransport)
	ask := func(ctx context.Context, query string) *http.Response {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"?watch=true"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	response := ask(t.Context(), "")
	if _, err := response.Body.Read(make([]byte, 1<<10)); err != nil {
		t.Error(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	<-gone
	response = ask(t.Context(), "&ends=1")
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	_ = response.Body.Close()
}
