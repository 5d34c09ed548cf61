package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/site"
)

// What was stored before schemas were bounded, or is nested as no list is decoded, stops nobody: a manager that starts gets ready,
// reconciles the others and evaluates requests by all policies (controller-runtime#1032, argo-workflows#3677).
func TestObjectsThatCannotBeDecoded(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	crds, err := loose()
	if err != nil {
		t.Fatal(err)
	}
	s := site.Start(t, site.Options{Plane: env.Options{CRDs: crds}, Values: []string{"rbac.reads.configmaps=true"}, Prepare: prepare})
	s.Run(t, site.Scripts{
		Dir: "testdata/undecodable", Alone: true,
		Variables: map[string]string{"COLUMNS": "-o=custom-columns=:.involvedObject.kind,:.involvedObject.name,:.message"},
		Commands: map[string]func(*testscript.TestScript, bool, []string){"deepen": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(deepen(context.Background(), s.Client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: args[0]}}))
		}},
	})
}

// loose are the definitions of the chart, which admit everything.
func loose() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds, err := charts.CRDs()
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			v.SelectableFields = nil
			v.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open},
			}
		}
	}
	return crds, err
}

// prepare stores all objects, and then installs the definitions of the chart.
func prepare(ctx context.Context, s *site.Site) error {
	c := s.Client
	for _, name := range []string{"team-a", "team-b"} {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	text, err := os.ReadFile("testdata/files/objects.yaml")
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLToJSONDecoder(bytes.NewReader(text))
	for err == nil {
		o := &unstructured.Unstructured{}
		if err = decoder.Decode(&o.Object); err == nil {
			err = store(ctx, c, o)
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	deep := metav1.ObjectMeta{Namespace: "team-a", Name: "deep"}
	for _, name := range []string{"deep", "walls"} {
		if err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}); err != nil {
			return err
		}
	}
	if err := errors.Join(
		deepen(ctx, c, &v1alpha1.VirtualMachine{ObjectMeta: deep}), deepen(ctx, c, &corev1.ConfigMap{ObjectMeta: deep}),
	); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&v1alpha1.VirtualMachineList{}, &v1alpha1.VirtualMachinePoolList{}, &v1alpha1.VSphereServerList{}} {
		if err := c.List(ctx, list); err == nil {
			return fmt.Errorf("%T can be listed", list)
		}
	}
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	return s.Plane.InstallCRDs(ctx, crds...)
}

// store creates an object as it stands, with its status.
func store(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	stored := o.DeepCopy()
	if err := c.Create(ctx, stored); err != nil {
		return fmt.Errorf("storing %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	if o.Object["status"] == nil {
		return nil
	}
	stored.Object["status"] = o.Object["status"]
	if err := c.Status().Update(ctx, stored); err != nil {
		return fmt.Errorf("storing the status of %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// deepen gives an object managedFields that fit into JSON as long as it is not in a list. It is an update, because the API server copies the
// rest of a patch at each of its levels.
func deepen(ctx context.Context, c client.Client, o client.Object) error {
	const levels = 9995
	kind, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return err
	}
	fields := map[string]any{}
	for range levels - 1 {
		fields = map[string]any{"f:a": fields}
	}
	entry := map[string]any{
		"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
	}
	if err := unstructured.SetNestedField(live.Object, []any{entry}, "metadata", "managedFields"); err != nil {
		return err
	}
	return c.Update(ctx, live)
}
