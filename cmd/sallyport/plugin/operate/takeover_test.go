package operate

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// Templates are taken over, too. None is created beside another one, because a folder can have only one of the name.
func TestTakeOverOfTemplates(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": "False", "reason": "OwnedByAnother"},
	}}}}
	for kind, want := range map[string]bool{"VirtualMachine": true, "VirtualDisk": true, "VSphereTemplate": true, "VSphereServer": false} {
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if got := heldBack(o); got != want {
			t.Errorf("%s is held back: %t", kind, got)
		}
	}
	for _, e := range earlierCommands {
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(cli.TemplateKind))
		if err := e.mayDecide(o); (err == nil) != (e.use == "take-over") {
			t.Errorf("%s: %v", e.use, err)
		}
	}
}
