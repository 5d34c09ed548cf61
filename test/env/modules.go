package env

import (
	"crypto/sha256"
	_ "embed" // for the wrapper module below
	"encoding/hex"
	"fmt"
	"regexp"
	"runtime"
	"strings"
)

// The wrapper module that the programs are built in; bump.sh writes both files. They are not called go.mod and go.sum
// because a folder with a go.mod is a module of its own, which go:embed does not reach into.
var (
	//go:embed controlplane.mod
	wrapperMod string
	//go:embed controlplane.sum
	wrapperSum string
)

// The programs of a control plane, as their binaries are called.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kubectl           = "kubectl"
)

// program is one binary and what it takes to build it.
type program struct {
	name    string
	pkg     string // import path of its main package
	module  string // module whose version it has
	minutes int    // what building it takes on two cores with nothing cached; only said, never relied on
}

var programs = []program{
	{name: Etcd, pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3", minutes: 1},
	{name: APIServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: kubernetesModule, minutes: 4},
	{name: ControllerManager, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: kubernetesModule, minutes: 1},
	{name: Kubectl, pkg: "k8s.io/kubernetes/cmd/kubectl", module: kubernetesModule, minutes: 1},
}

const kubernetesModule = "k8s.io/kubernetes"

// wrapper is a module that programs are built in, and how.
type wrapper struct {
	folder   string // in the cache
	mod, sum string
	module   string // whose version names the build
	flags    []string
	instead  string // what would spare the build; for errors
}

// controlPlane is the wrapper of the control plane's programs.
func controlPlane() wrapper {
	return wrapper{
		folder: "control-plane", mod: wrapperMod, sum: wrapperSum, module: kubernetesModule, flags: buildFlags(),
		instead: ", or ready-made binaries in " + assetsVariable,
	}
}

// KubernetesVersion returns the version of Kubernetes that Binaries builds, such as v1.2.3.
func KubernetesVersion() string { return requiredVersion(wrapperMod, kubernetesModule) }

// requiredVersion returns the version at which a go.mod requires a module, "" if it does not.
func requiredVersion(mod, module string) string {
	found := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
	if found == nil {
		return ""
	}
	return found[1]
}

// buildFlags are the flags of go build, the same for all programs of the control plane.
func buildFlags() []string {
	// Without these, every component would call itself v0.0.0-master, and kubectl would complain about version skew.
	version := KubernetesVersion()
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const pkg = "k8s.io/component-base/version"
	return []string{
		"-mod=readonly", "-trimpath", "-buildvcs=false",
		fmt.Sprintf("-ldflags=-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
			pkg, version, major, minor),
	}
}

// key names the folder of the binaries. It changes with everything of ours that goes into them, so that what lies in a
// folder never has to be checked. The Go version is left out: a newer compiler is no reason to rebuild.
func (w wrapper) key() string {
	hash := sha256.New()
	for _, part := range append([]string{w.mod, w.sum, runtime.GOOS, runtime.GOARCH}, w.flags...) {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return requiredVersion(w.mod, w.module) + "-" + hex.EncodeToString(hash.Sum(nil))[:12]
}
