package decoding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// machines returns the JSON of a list of ordinary VirtualMachines.
func machines(b *testing.B, count int) []byte {
	b.Helper()
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:cpu":{},"f:memory":{},"f:runPolicy":{},"f:runtime":{"f:vsphere":` +
		`{"f:clone":{"f:datastore":{},"f:folder":{},"f:networks":{},"f:resourcePool":{}},"f:serverRef":{}}}},"f:status":{"f:conditions":` +
		strings.Repeat(`{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":`, 3) + `{}}}}}}}}}`
	var items []string
	for i := range count {
		items = append(items, fmt.Sprintf(`{"apiVersion":"sallyport.dev/v1alpha1","kind":"VirtualMachine","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z",`+
			`"finalizers":["sallyport.dev/virtual-machine"],"generation":3,"labels":{"app":"web"},"managedFields":[{"apiVersion":"sallyport.dev/v1alpha1",`+
			`"fieldsType":"FieldsV1","fieldsV1":%[2]s,"manager":"kubectl","operation":"Apply","time":"2026-01-01T00:00:00Z"},{"apiVersion":"sallyport.dev/v1alpha1",`+
			`"fieldsType":"FieldsV1","fieldsV1":%[2]s,"manager":"sallyport","operation":"Update","subresource":"status","time":"2026-01-01T00:00:00Z"}],`+
			`"name":"web-%[1]d","namespace":"team-a","resourceVersion":"%[1]d","uid":"9d0f1a5e-6f6b-4e5c-9a44-%012[1]d"},"spec":{"cpu":2,"memory":"2Gi",`+
			`"runPolicy":"AlwaysOn","restartApprovalMode":"Manual","runtime":{"vsphere":{"clone":{"datastore":"/dc-1/datastore/fast","folder":"/dc-1/vm/team-a",`+
			`"networks":["/dc-1/network/team-a"],"resourcePool":"/dc-1/host/cluster-1/Resources/team-a","template":{"inventoryPath":"/dc-1/vm/templates/u"}},`+
			`"serverRef":{"name":"vc-1"}}}},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"the machine is Running as its run policy requires",`+
			`"observedGeneration":3,"reason":"Ready","status":"True","type":"Ready"},{"lastTransitionTime":"2026-01-01T00:00:00Z","message":"","reason":"Settled",`+
			`"status":"True","type":"PlacementSettled"}],"instanceID":"vm-%[1]d","nodeName":"esx-1","observedGeneration":3,"phase":"Running"}}`, i, fields))
	}
	text := []byte(`{"apiVersion":"sallyport.dev/v1alpha1","items":[` + strings.Join(items, ",") + `],"kind":"VirtualMachineList","metadata":{"resourceVersion":"1"}}`)
	if !json.Valid(text) {
		b.Fatal("no JSON")
	}
	return text
}

// BenchmarkLists measures how long a list takes with the filter, as a multiple of decoding alone.
func BenchmarkLists(b *testing.B) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	const count = 200
	text := machines(b, count)
	for name, c := range map[string]struct {
		filter Filter
		decode func([]byte) error
	}{
		"typed": {Filter{Scheme: scheme, DropManagedFields: true}, func(text []byte) error {
			return utiljson.Unmarshal(text, &v1alpha1.VirtualMachineList{})
		}},
		"unstructured": {Filter{DropManagedFields: true}, func(text []byte) error {
			return (&unstructured.UnstructuredList{}).UnmarshalJSON(text)
		}},
		"unstructured, whole": {Filter{}, func(text []byte) error { return (&unstructured.UnstructuredList{}).UnmarshalJSON(text) }},
	} {
		b.Run(name, func(b *testing.B) {
			var alone, with, filter time.Duration
			var out bytes.Buffer
			for b.Loop() {
				began := time.Now()
				if err := c.decode(text); err != nil {
					b.Fatal(err)
				}
				decoded := time.Now()
				out.Reset()
				p := &passing{Filter: c.filter, scanner: newScanner(bytes.NewReader(text)), to: &out}
				if err := p.response(); err != nil {
					b.Fatal(err)
				}
				filtered := time.Now()
				if err := c.decode(out.Bytes()); err != nil {
					b.Fatal(err)
				}
				alone, filter, with = alone+decoded.Sub(began), filter+filtered.Sub(decoded), with+time.Since(decoded)
			}
			b.ReportMetric(float64(with)/float64(alone), "of-decoding")
			b.ReportMetric(float64(filter.Nanoseconds())/float64(b.N*count), "ns/object")
			b.ReportMetric(float64(len(text)/count), "bytes/object")
		})
	}
}
