package manager

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Machines of KubeVirt where there is none say why, and what an administrator can do.
func TestWithoutKubeVirt(t *testing.T) {
	vm := machineOn(v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{}})
	for what, tc := range map[string]struct {
		machines machines
		want     string
	}{
		"disabled":      {machines{}, "runtimes.kubevirt.enabled=true"},
		"not installed": {machines{kubeVirtEnabled: true}, "after KubeVirt is installed"},
	} {
		if _, err := tc.machines.runtime(t.Context(), vm); !runtime.IsNotSupported(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
