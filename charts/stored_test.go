package charts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func merge(format string, args ...any) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, args...))
}

// copyOfDisks is a definition like that of VirtualDisks in a group of its own: no webhook is asked, and it can be changed.
func (c *cluster) copyOfDisks(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := definitionOf(t, "VirtualDisk")
	crd.Spec.Group, crd.Name = "stored.example.org", crd.Spec.Names.Plural+".stored.example.org"
	crd.Spec.Names.Categories, crd.Spec.Names.ShortNames = nil, nil
	return crd
}

func copiedDisk(name, size string) *unstructured.Unstructured {
	o := newObject("VirtualDisk", name, map[string]any{"size": size, "runtime": map[string]any{"pod": map[string]any{}}})
	o.SetAPIVersion("stored.example.org/v1alpha1")
	return o
}

// What Go does not decode, or for minutes, is refused by the API server's schema, before any webhook and at once: a pattern alone would not
// keep it from evaluating CEL. What was stored by an older definition does not keep the rest of the object from being changed.
func TestSchemasRefuseWhatGoDoesNotDecode(t *testing.T) {
	c := newCluster(t)
	strict := c.copyOfDisks(t)
	loose := strict.DeepCopy()
	spec := loose.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	size := spec.Properties["size"]
	spec.Properties["size"] = apiextensionsv1.JSONSchemaProps{XIntOrString: true, AnyOf: size.AnyOf}
	spec.Required, spec.XValidations = nil, nil
	loose.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	if err := c.Create(t.Context(), loose); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), loose); err != nil {
			t.Error(err)
		}
	})
	for name, size := range map[string]string{"old": "1e1.5", "odd": "1e.5", "older": "1e-2000000000", "sizeless": "", "ruleless": "1Gi"} {
		eventually(t, "a disk of the loose definition", func(ctx context.Context) error {
			disk := copiedDisk(name, size)
			disk.SetFinalizers([]string{"example.com/test"})
			switch spec := disk.Object["spec"].(map[string]any); name {
			case "sizeless":
				delete(spec, "size")
			case "ruleless":
				spec["runtime"] = map[string]any{"vsphere": map[string]any{"serverRef": map[string]any{"name": "a"}, "datastore": "/DC0/datastore/b"}}
				spec["source"] = map[string]any{"image": map[string]any{"name": "c"}}
			}
			return c.Create(ctx, disk)
		})
	}
	if err := c.Patch(t.Context(), strict, client.Merge); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition of the chart", func(ctx context.Context) error {
		if err := c.Create(ctx, copiedDisk("probe", "0"), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a disk of no size: %w", err)
		}
		return nil
	})

	refused := func(what, field string, do func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := do(ctx); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want a refusal that names %s", what, err, field)
		}
	}
	for _, size := range []string{"1e1.5", "1e.5", "1e99999999999999999999", "1e-2000000000", "1E2000000000", "00000000000000000000008Gi"} {
		refused("a disk of "+size, "spec.size", func(ctx context.Context) error { return c.Create(ctx, copiedDisk("new", size)) })
	}
	good := copiedDisk("good", "1.5Gi")
	if err := c.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	refused("a size that takes minutes", "spec.size", func(ctx context.Context) error {
		return c.Patch(ctx, good.DeepCopy(), merge(`{"spec":{"size":"1e-2000000000"}}`))
	})
	refused("a disk that shrinks", "cannot shrink", func(ctx context.Context) error {
		return c.Patch(ctx, good.DeepCopy(), merge(`{"spec":{"size":"1e9"}}`))
	})
	for what, tc := range map[string]struct{ field, status string }{
		"a quantity":                  {"status.capacity", `{"capacity":"1e.5"}`},
		"one that takes minutes":      {"status.capacity", `{"capacity":"1e-2000000000"}`},
		"a time in small letters":     {"status.freeSince", `{"freeSince":"2026-05-04t03:02:01z"}`},
		"a list for a time":           {"status.freeSince", `{"freeSince":[]}`},
		"a list with a time":          {"status.freeSince", `{"freeSince":["2026-05-04T03:02:01Z"]}`},
		"a time without microseconds": {"status.attachedTo.since", `{"attachedTo":{"name":"a","uid":"b","since":"2026-05-04T03:02:01Z"}}`},
		"a transition": {"lastTransitionTime",
			`{"conditions":[{"type":"Ready","status":"True","reason":"A","message":"","lastTransitionTime":"2026-05-04T03:02:01ZT"}]}`},
	} {
		refused(what, tc.field, func(ctx context.Context) error {
			return c.Status().Patch(ctx, good.DeepCopy(), merge(`{"status":%s}`, tc.status))
		})
	}
	// A change of the part that lacks something has to make it right.
	refused("a change beside a size that is not there", "spec.size", func(ctx context.Context) error {
		return c.Patch(ctx, copiedDisk("sizeless", ""), merge(`{"spec":{"source":{"image":{"name":"a"}}}}`))
	})
	refused("a change beside what a new rule refuses", "not allowed for a disk on a vCenter", func(ctx context.Context) error {
		return c.Patch(ctx, copiedDisk("ruleless", ""), merge(`{"spec":{"size":"2Gi"}}`))
	})
	if err := c.Patch(t.Context(), copiedDisk("sizeless", ""), merge(`{"spec":{"size":"2Gi"}}`), client.DryRunAll); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"old", "odd", "older", "sizeless", "ruleless"} {
		disk := copiedDisk(name, "")
		if err := errors.Join(
			c.Patch(t.Context(), disk, merge(`{"metadata":{"labels":{"a":"b"}}}`)),
			c.Status().Patch(t.Context(), disk, merge(`{"status":{"phase":"Lost"}}`)),
			c.Delete(t.Context(), disk),
			c.Patch(t.Context(), disk, merge(`{"metadata":{"finalizers":null}}`)),
		); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(disk), disk); !apierrors.IsNotFound(err) {
			t.Errorf("%s is not gone: %v", name, err)
		}
	}
}
