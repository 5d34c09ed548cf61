package env

import (
	"context"
	_ "embed" // for the module graph below
	"fmt"
)

// The module graph of KubeVirt, with the dependencies that it was released with.
var (
	//go:embed kubevirt.mod
	kubeVirtMod string
	//go:embed kubevirt.sum
	kubeVirtSum string
	// kubeVirtManifests is a program that prints what KubeVirt's operator would install.
	//go:embed testdata/kubevirt/manifests.go
	kubeVirtManifests string
)

const kubeVirtModule = "kubevirt.io/kubevirt"

var kubeVirtPrograms = []program{
	{name: "virt-api", pkg: kubeVirtModule + "/cmd/virt-api", module: kubeVirtModule, seconds: 120},
	{name: "virt-controller", pkg: kubeVirtModule + "/cmd/virt-controller", module: kubeVirtModule, seconds: 30},
	{name: "kubevirt-manifests", module: kubeVirtModule, seconds: 30, source: kubeVirtManifests},
}

// KubeVirt returns the paths of the programs of KubeVirt by their names: virt-api, virt-controller, kubevirt-manifests. If one is missing and
// build is false, there are none.
func KubeVirt(ctx context.Context, logf func(format string, args ...any), build bool) (map[string]string, error) {
	b, err := newBuilder(graph{mod: kubeVirtMod, sum: kubeVirtSum, also: fmt.Sprint(kubeVirtPrograms)}, logf)
	if err != nil {
		return nil, err
	}
	return b.paths(ctx, kubeVirtPrograms, build)
}
