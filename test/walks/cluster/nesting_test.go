package cluster

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/test/support/site"
)

// An object that is nested as deeply as the API server stores it, which client-go decodes in no list, does not stop the policies that read
// its kind (controller-runtime#1032, argo-workflows#3677). Of kinds with a schema, the API server drops managedFields that name no field.
func TestObjectsThatAreNestedDeeply(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	s := site.Start(t, site.Options{Values: []string{"rbac.reads.configmaps=true"}, Prepare: prepare})
	s.Run(t, site.Scripts{
		Dir: "testdata/nesting", Alone: true,
		Commands: map[string]func(*testscript.TestScript, bool, []string){"deepen": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(deepen(context.Background(), s.Client, args[0]))
		}},
	})
}

// prepare stores the policy, and ConfigMaps that cannot be listed, before the manager starts.
func prepare(ctx context.Context, s *site.Site) error {
	c := s.Client
	text, err := os.ReadFile("testdata/files/walls.yaml")
	if err != nil {
		return err
	}
	policy, list := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	if err := yaml.Unmarshal(text, &policy.Object); err != nil {
		return err
	}
	if err := c.Create(ctx, policy); err != nil {
		return err
	}
	for _, name := range []string{"team-a", "team-b"} {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	for _, name := range []string{"deep", "walls"} {
		if err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}); err != nil {
			return err
		}
	}
	if err := deepen(ctx, c, "deep"); err != nil {
		return err
	}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := c.List(ctx, list); err == nil {
		return errors.New("the ConfigMaps can be listed without a limit")
	}
	return nil
}

// deepen gives a ConfigMap managedFields that fit into JSON as long as it is not in a list. It is an update, because the API server copies
// the rest of a patch at each of its levels.
func deepen(ctx context.Context, c client.Client, name string) error {
	const levels = 9996
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := c.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: name}, live); err != nil {
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
