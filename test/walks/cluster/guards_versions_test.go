package cluster

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var fleets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Fleet"}

// versions: a kind of which another version has the replicas in another field is guarded in all, if the policy names the version that it
// knows, because the API server converts the requests.
func (s *guardSite) versions() {
	server := httptest.NewTLSServer(http.HandlerFunc(convert))
	defer server.Close()
	crd := definition(fleets)
	crd.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	second := crd.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions, *second)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{
			URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
	}}
	manifest, err := json.Marshal(crd)
	s.Must(err)
	t := &trial{guardSite: s, guarded: true, space: s.namespace()}
	t.mustKubectl(s.try("", string(manifest), "create -f -"))
	t.mustKubectl(s.try("", "", "wait crd/"+crd.Name+" --for=condition=Established"))
	before := s.policy(scaling)
	match, err := json.Marshal(before.Spec.Match.Resources)
	s.Must(err)
	s.edit(scaling, `{"spec":{"match":{"resources":`+strings.TrimSuffix(string(match), "]")+`,
		{"apiGroups":["example.com"],"apiVersions":["v1"],"resources":["fleets"],"operations":["CREATE","UPDATE"]}]},
		"parameters":{"kinds":{"fleets.example.com":{"replicas":["spec","workers","count"],"default":1}}}}}`)
	t.make(`{apiVersion: example.com/v1, kind: Fleet, metadata: {name: web, annotations: ` + t.annotations(atLeastTwo) + `}, spec: {workers: {count: 4}}}`)
	for _, by := range []struct{ version, merge string }{{"v1", `{"spec":{"workers":{"count":1}}}`}, {"v2", `{"spec":{"size":1}}`}} {
		t.Until("a request in version "+by.version+" is refused", func() (string, bool) {
			said, ok := t.kubectl("patch fleets."+by.version+".example.com web --dry-run=server --type=merge -p", by.merge)
			return said, !ok && refuses(said, belowMinimum)
		})
	}
	s.edit(scaling, `{"spec":{"match":{"resources":`+string(match)+`},"parameters":{"kinds":{"fleets.example.com":null}}}}`)
	t.mustKubectl(s.try("", "", "delete crd "+crd.Name))
	s.spaces.give(t.space)
}

// convert answers the API server: version v1 has the replicas in spec.workers.count, v2 in spec.size.
func convert(w http.ResponseWriter, r *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(bytes.TrimSpace(raw.Raw)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if o.GetAPIVersion() != review.Request.DesiredAPIVersion {
			o.Object["spec"] = converted(o)
			o.SetAPIVersion(review.Request.DesiredAPIVersion)
		}
		answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: o})
	}
	review.Request, review.Response = nil, answer
	_ = json.NewEncoder(w).Encode(review)
}

// converted is the spec of the other version.
func converted(o *unstructured.Unstructured) map[string]any {
	if o.GroupVersionKind().Version == fleets.Version {
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "workers", "count")
		return map[string]any{"size": n}
	}
	n, _, _ := unstructured.NestedInt64(o.Object, "spec", "size")
	return map[string]any{"workers": map[string]any{"count": n}}
}
