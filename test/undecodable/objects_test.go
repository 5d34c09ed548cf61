package undecodable

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/charts"
)

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

// machine is a VirtualMachine with a disk of a size, and more of its status.
func machine(namespace, name, size, status string) string {
	return fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {namespace: %s, name: %s, finalizers: [sallyport.dev/virtual-machine]}
spec:
  cpu: 2
  memory: 2Gi
  runtime:
    vsphere:
      serverRef: {name: vc-1}
      clone:
        template: {inventoryPath: /dc-1/vm/templates/u}
        folder: /dc-1/vm/team
        resourcePool: /dc-1/host/cluster-1/Resources/team
        datastore: /dc-1/datastore/fast
        networks: [/dc-1/network/team]
        disks: [{size: %q}]
status: {%s}
`, namespace, name, size, status)
}

// poisoned are objects that do not decode into their types, by the field of which that is so.
var poisoned = map[string]string{
	"spec.runtime.vsphere.clone.disks[0].size":                  machine("team-a", "poison", "1e1.5", ""),
	"status.conditions[0].lastTransitionTime":                   machine("team-a", "time", "1Gi", `conditions: [{type: Ready, status: "True", reason: A, message: "", lastTransitionTime: "2026-01-01t00:00:00z"}]`),
	"spec.tenants[0].quota.memory":                              server,
	"status.freeSince":                                          disk,
	"spec.virtualMachineTemplate.spec.memory":                   pool,
	"status.startTime":                                          operation,
	"status.reportedAt":                                         walls,
	"status.failureDomains[0].conditions[0].lastTransitionTime": template,
}

const (
	server = `
apiVersion: sallyport.dev/v1alpha1
kind: VSphereServer
metadata: {name: vc-2}
spec:
  url: https://vcenter.example.org
  trust: {thumbprint: "0B:6C:4E:F1:93:27:5D:A8:11:C0:7E:36:D2:49:8A:F5:60:1B:BC:73:2E:94:D8:05:EF:58:A1:3D:C6:7F:22:9B"}
  credentialsSecretRef: {name: vc-1-login}
  tenants: [{name: team-a, namespaces: {names: [team-a]}, folders: [/dc-1/vm/team], quota: {memory: "1e1.5"}, adopt: true}]
`
	disk = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualDisk
metadata: {namespace: team-a, name: poison}
spec: {size: 1Gi, runtime: {vsphere: {serverRef: {name: vc-1}}}}
status: {freeSince: []}
`
	pool = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachinePool
metadata: {namespace: team-a, name: poison}
spec:
  replicas: 0
  scaleDownPolicy: NewestFirst
  virtualMachineTemplate: {spec: {memory: "1e.5", runtime: {pod: {}}}}
`
	operation = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachineOperation
metadata: {namespace: team-b, name: poison}
spec: {type: Stop, virtualMachineName: other}
status: {startTime: "2026-01-01T00:00:00Z now"}
`
	template = `
apiVersion: sallyport.dev/v1alpha1
kind: VSphereTemplate
metadata: {namespace: team-a, name: poison}
spec: {serverRef: {name: vc-1}}
status: {failureDomains: [{name: a, conditions: [{type: Ready, status: "True", reason: A, message: "", lastTransitionTime: {}}]}]}
`
	// walls is a policy that reads ConfigMaps from its cache.
	walls = `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: walls}
spec:
  package: example.walls
  onError: Allow
  match:
    resources: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE]}]
  reads: [{apiVersion: v1, kind: ConfigMap}]
  modules:
  - name: walls.rego
    source: |
      # METADATA
      # title: Walls
      # description: A ConfigMap walls keeps Services out of its namespace.
      package example.walls

      facts.walls := {"apiVersion": "v1", "kind": "ConfigMap", "namespace": input.request.namespace}

      valid_input if is_object(input.request)

      # METADATA
      # title: What is refused
      # custom: {reason: Walled, remedy: Delete the ConfigMap walls.}
      deny contains {"reason": "Walled", "code": 403, "message": "there are walls"} if {
      	some wall in input.facts.walls
      	wall.metadata.name == "walls"
      }
  tests:
  - name: walls_test.rego
    source: |
      package example.walls_test

      import data.example.walls as policy

      test_refused[note] if {
      	some note, request in {"the one": {"namespace": "a"}}
      	count(policy.deny) == 1 with input as {"request": request, "facts": {"walls": [{"metadata": {"name": "walls"}}]}}
      }
status: {reportedAt: "2026-01-01t00:00:00z"}
`
)

func parsed(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	return o, yaml.Unmarshal([]byte(text), &o.Object)
}

// store has an object stored as it stands, with its status.
func store(ctx context.Context, c client.Client, text string) error {
	o, err := parsed(text)
	if err != nil {
		return err
	}
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
