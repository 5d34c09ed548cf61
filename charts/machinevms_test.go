package charts_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofKubeVirt is a definition of KubeVirt without its fields.
func ofKubeVirt(kind string) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".kubevirt.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "kubevirt.io", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

// The rights of Sallyport's ServiceAccount on VMs of KubeVirt in all namespaces are of use for VMs of VirtualMachines only.
func TestServiceAccountWritesVMsOfMachinesOnly(t *testing.T) {
	c := newCluster(t)
	c.make(t, ofKubeVirt("VirtualMachine"), ofKubeVirt("VirtualMachineInstanceMigration"))
	c.install(t, "--set", "runtimes.kubevirt.enabled=true,webhook.failurePolicy=Ignore")
	thief := c.as(t, "system:serviceaccount:sallyport-system:sallyport", "system:masters")
	const label, annotation = "sallyport.dev/virtual-machine-uid", "sallyport.dev/adopted-with-run-strategy"
	object := func(kind, name, uid, strategy string) *unstructured.Unstructured {
		o := newObject(kind, name, map[string]any{})
		o.SetAPIVersion("kubevirt.io/v1")
		if uid != "" {
			o.SetLabels(map[string]string{label: uid})
		}
		if strategy != "" {
			o.SetAnnotations(map[string]string{annotation: strategy})
		}
		return o
	}
	vm := func(name, uid, strategy string) *unstructured.Unstructured {
		return object("VirtualMachine", name, uid, strategy)
	}
	move := func(name, uid string) *unstructured.Unstructured {
		return object("VirtualMachineInstanceMigration", name, uid, "")
	}
	foreign, pooled, created, adopted := vm("foreign", "", ""), vm("pooled", "", ""), vm("created", "u-1", ""), vm("adopted", "u-2", "Always")
	pooled.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "pool.kubevirt.io/v1beta1", Kind: "VirtualMachinePool", Name: "p", UID: "u-3", Controller: new(true)}})
	theirs, own := move("theirs", ""), move("own", "u-1")
	eventually(t, "KubeVirt to be served", func(ctx context.Context) error {
		return errors.Join(c.Create(ctx, vm("x", "", ""), client.DryRunAll), c.Create(ctx, move("x", ""), client.DryRunAll))
	})
	c.make(t, foreign, pooled, created, adopted, theirs, own)
	eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if thief.Create(ctx, vm("new", "", ""), client.DryRunAll) == nil {
			return errors.New("a VM of nobody is created")
		}
		return nil
	})
	create := func(o client.Object) error { return thief.Create(t.Context(), o, client.DryRunAll) }
	remove := func(o *unstructured.Unstructured) error {
		return thief.Delete(t.Context(), o.DeepCopy(), client.DryRunAll)
	}
	patch := func(o *unstructured.Unstructured, text string) error {
		return thief.Patch(t.Context(), o.DeepCopy(), merge("%s", text), client.DryRunAll)
	}
	status := func(o *unstructured.Unstructured) error {
		return thief.Status().Patch(t.Context(), o.DeepCopy(), merge(`{"status":{"stateChangeRequests":null},"metadata":{"labels":{%q:"u-1"}}}`, label), client.DryRunAll)
	}
	const (
		adopt   = `{"metadata":{"labels":{"` + label + `":"u-4"},"annotations":{"` + annotation + `":"Always"}}}`
		marks   = `{"metadata":{"labels":{"` + label + `":"u-4"}}}`
		release = `{"metadata":{"labels":{"` + label + `":null},"annotations":{"` + annotation + `":null}}}`
		forget  = `{"metadata":{"annotations":{"` + annotation + `":null}}}`
		spec    = `{"spec":{"runStrategy":"Halted"}}`

		others, unmarked, kept = "that have or get the label " + label, "adopts only VirtualMachines of KubeVirt without a controller", "does not delete VirtualMachines of KubeVirt that it has adopted"
	)
	for what, tc := range map[string]struct {
		err  error
		want string
	}{
		"creating a VM":                            {create(vm("new", "u-5", "")), ""},
		"creating a VM without the label":          {create(vm("new", "", "")), others},
		"creating a migration":                     {create(move("new", "u-1")), ""},
		"creating a migration without the label":   {create(move("new", "")), others},
		"configuring a VM":                         {patch(created, spec), ""},
		"configuring an adopted VM":                {patch(adopted, spec), ""},
		"configuring a foreign VM":                 {patch(foreign, spec), others},
		"adopting a VM":                            {patch(foreign, adopt), ""},
		"adopting a VM of a pool":                  {patch(pooled, adopt), unmarked},
		"marking a foreign VM as created":          {patch(foreign, marks), unmarked},
		"taking a VM over":                         {patch(adopted, marks), ""},
		"releasing a VM":                           {patch(adopted, release), ""},
		"having an adopted VM be a created one":    {patch(adopted, forget), kept},
		"deleting a VM":                            {remove(created), ""},
		"deleting an adopted VM":                   {remove(adopted), kept},
		"deleting a foreign VM":                    {remove(foreign), others},
		"cancelling a migration":                   {remove(own), ""},
		"cancelling a migration of somebody else":  {remove(theirs), others},
		"writing the status of a VM":               {status(created), ""},
		"writing the status of a foreign VM":       {status(foreign), others},
		"deleting a foreign VM as another account": {c.Delete(t.Context(), foreign.DeepCopy(), client.DryRunAll), ""},
	} {
		if tc.want == "" && tc.err != nil || tc.want != "" && (tc.err == nil || !strings.Contains(tc.err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", what, tc.err, tc.want)
		}
	}
}
