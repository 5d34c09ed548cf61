package nesting_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/internal/nesting"
)

// nested returns JSON with lists in objects, that many of both.
func nested(pairs int, inner string) string {
	return strings.Repeat(`{"}\"]\\":[`, pairs) + inner + strings.Repeat(`]}`, pairs)
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// What is nested too deeply is emptied; all else passes as it is, wherever the parts end that are read.
func TestLimit(t *testing.T) {
	for name, c := range map[string]struct{ kind, text, want string }{
		"shallow":    {"application/json", nested(99, `{"a":[],"b":1} `), nested(99, `{"a":[],"b":1} `)},
		"deep":       {"application/json; charset=utf-8", nested(9000, `1`), nested(100, ``)},
		"beside":     {"application/json", `[1,` + nested(200, `"]"`) + `,{"a":[2]}]`, `[1,` + nested(99, `{}`) + `,{"a":[2]}]`},
		"watch":      {"application/json;stream=watch", nested(200, ``) + "\n" + nested(2, `"\\"`) + "\n", nested(100, ``) + "\n" + nested(2, `"\\"`) + "\n"},
		"no object":  {"application/json", `"{[`, `"{[`},
		"empty":      {"application/json", ``, ``},
		"other kind": {"text/plain", nested(200, ``), nested(200, ``)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parts := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
				transport := nesting.Limit(answers(func(*http.Request) (*http.Response, error) {
					return &http.Response{
						StatusCode: http.StatusOK, ContentLength: int64(len(c.text)), Header: http.Header{"Content-Type": {c.kind}},
						Body: io.NopCloser(parts(strings.NewReader(c.text))),
					}, nil
				}))
				response, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(response.Body); err != nil || string(got) != c.want {
					t.Errorf("got %.300q, %v", got, err)
				}
			}
		})
	}
}

// clientOf returns a client whose API server always sends the same response.
func clientOf(t testing.TB, answer string, wrap func(http.RoundTripper) http.RoundTripper) client.WithWatch {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	if wrap != nil {
		config.Wrap(wrap)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"managedFields":[{"fieldsV1":%s}]}}`, name, fields)
}

// A list and a watch with an object as deep as the API server stores it go on, for all clients: without the limit, client-go decodes neither.
func TestClientsDecodeWhatIsStored(t *testing.T) {
	deep := configMap("deep", strings.Repeat(`{"f:x":`, 9995)+"{}"+strings.Repeat("}", 9995))
	list := `{"apiVersion":"v1","kind":"ConfigMapList","items":[` + deep + `,` + configMap("plain", "{}") + `]}`
	untyped := &unstructured.UnstructuredList{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	for _, into := range []client.ObjectList{&corev1.ConfigMapList{}, untyped} {
		if err := clientOf(t, list, nil).List(t.Context(), into); err == nil {
			t.Errorf("%T is decoded without the limit", into)
		}
		if err := clientOf(t, list, nesting.Limit).List(t.Context(), into); err != nil || meta.LenList(into) != 2 {
			t.Errorf("%T: got %d items, %v", into, meta.LenList(into), err)
		}
	}
	events := `{"type":"ADDED","object":` + deep + "}\n" + `{"type":"DELETED","object":` + configMap("plain", "{}") + "}\n"
	w, err := clientOf(t, events, nesting.Limit).Watch(t.Context(), &corev1.ConfigMapList{})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for e := range w.ResultChan() {
		if is, ok := e.Object.(*corev1.ConfigMap); ok {
			got += fmt.Sprintf("%s %s ", e.Type, is.Name)
		}
	}
	if got != "ADDED deep DELETED plain " {
		t.Errorf("got %s", got)
	}
}

// The limit takes a small part of the time that decoding takes.
func BenchmarkLimit(b *testing.B) {
	item := configMap("plain", `{"f:data":{"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`)
	list := `{"apiVersion":"v1","kind":"ConfigMapList","items":[` + strings.Repeat(item+",", 9999) + item + `]}`
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{"without": nil, "with": nesting.Limit} {
		c := clientOf(b, list, wrap)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := c.List(b.Context(), &corev1.ConfigMapList{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
