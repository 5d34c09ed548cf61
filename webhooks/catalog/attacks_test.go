package catalog

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// "SSRF from a policy's context": a schema that is to be had elsewhere is none.
func TestSSRFFromAParametersSchema(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"type": "object"}`))
	}))
	defer server.Close()
	for name, schema := range map[string]string{
		"as a whole":  `{"$ref": "URL"}`,
		"of a field":  `{"type": "object", "properties": {"a": {"$ref": "URL"}}}`,
		"one of two":  `{"type": "object", "anyOf": [{"$ref": "URL"}, {"required": ["a"]}]}`,
		"a dialect":   `{"$schema": "URL", "type": "object", "properties": {"a": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"$ref": "URL"}}}`,
		"of a type":   `{"id": "URL", "type": "object", "properties": {"a": {"$ref": "other.json"}}}`,
		"of the rest": `{"type": "object", "additionalProperties": {"$ref": "URL"}}`,
	} {
		p := policy("p", "apps/v1/deployments UPDATE")
		p.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"a": 1}`)}
		p.Spec.ParametersSchema = &runtime.RawExtension{Raw: []byte(strings.ReplaceAll(schema, "URL", server.URL))}
		if _, err := Compile([]v1alpha1.RegoPolicy{p}); err == nil || !strings.Contains(err.Error(), "spec.parametersSchema is not a schema") {
			t.Errorf("%s: got %v", name, err)
		}
		if n := asked.Swap(0); n > 0 {
			t.Errorf("%s: the server was asked %d times", name, n)
		}
	}
}
