package env

import (
	"crypto/sha256"
	_ "embed" // for the module graphs below
	"encoding/hex"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// The module graphs that the programs are built from; bump.sh writes these files. They are not called go.mod and go.sum
// because a folder with a go.mod is a module of its own, which go:embed does not reach into.
var (
	//go:embed programs.mod
	programsMod string
	//go:embed programs.sum
	programsSum string
	//go:embed old.mod
	oldMod string
	//go:embed old.sum
	oldSum string
	//go:embed certmanager.mod
	certManagerMod string
	//go:embed certmanager.sum
	certManagerSum string
	//go:embed certmanager/main.go
	certManagerMain string
)

// The programs of a control plane, as their binaries are called.
const (
	Etcd              = lookup.Etcd
	APIServer         = lookup.APIServer
	ControllerManager = lookup.ControllerManager
	Kubectl           = lookup.Kubectl
)

const (
	helmName         = lookup.Helm
	helmModule       = "helm.sh/helm/v4"
	kubernetesModule = "k8s.io/kubernetes"

	certManagerModule = "github.com/cert-manager/cert-manager"
)

// program is one binary and what it takes to build it.
type program struct {
	name   string
	pkg    string // import path of its main package
	linked string // what go build calls it, if not by its name
	module string // module whose version it has
	// edits are replacements in its source, each of which must occur once: old, new, old, new.
	edits []string
	// source is the whole source of a program of ours.
	source string
	// seconds that building takes on two cores after those before it; shown to the user only.
	seconds int
}

var (
	etcdProgram = program{
		name: Etcd, pkg: "go.etcd.io/etcd/server/v3", linked: "server", module: "go.etcd.io/etcd/server/v3", seconds: 30,
	}
	apiServerProgram         = program{name: APIServer, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: kubernetesModule, seconds: 210}
	controllerManagerProgram = program{
		name: ControllerManager, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: kubernetesModule, seconds: 90,
	}
	kubectlProgram = program{name: Kubectl, pkg: "k8s.io/kubernetes/cmd/kubectl", module: kubernetesModule, seconds: 30}
	helmProgram    = program{name: helmName, pkg: helmModule + "/cmd/helm", module: helmModule, seconds: 30}

	certManagerProgram = program{name: "cert-manager", pkg: "main.go", linked: "main", module: certManagerModule, seconds: 120}

	// controlPlanePrograms are those of Binaries.
	controlPlanePrograms = []program{etcdProgram, apiServerProgram, controllerManagerProgram, kubectlProgram}
)

// binary returns what go build calls the program.
func (p program) binary() string {
	if p.linked != "" {
		return p.linked
	}
	return p.name
}

// graph is a module that programs are built in: its go.mod and go.sum, which fix the version of every dependency, and the source of a
// program of our own, if any.
type graph struct {
	mod, sum, main string
	// also is what else the binaries depend on.
	also string
}

var (
	// current has each library at the version that Sallyport's own go.mod has, so that it is compiled once for all programs.
	current = graph{mod: programsMod, sum: programsSum}
	// old has an API server with the dependencies that it was released with.
	old = graph{mod: oldMod, sum: oldSum}
	// certManager has cert-manager's controllers, with libraries at the versions of Sallyport's own go.mod, too.
	certManager = graph{mod: certManagerMod, sum: certManagerSum, main: certManagerMain}
)

// KubernetesVersion returns the version of Kubernetes that Binaries builds, such as v1.2.3.
func KubernetesVersion() string { return current.version(kubernetesModule) }

// OldKubernetesVersion returns the version of OldAPIServer.
func OldKubernetesVersion() string { return old.version(kubernetesModule) }

// HelmVersion returns the version of Helm that Helm builds, such as v4.5.6.
func HelmVersion() string { return current.version(helmModule) }

// version returns the version at which the graph requires a module, "" if it does not.
func (g graph) version(module string) string {
	found := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)(?: //.*)?$`).FindStringSubmatch(g.mod)
	if found == nil {
		return ""
	}
	return found[1]
}

// goVersion returns the Go version that the graph asks for.
func (g graph) goVersion() string {
	for line := range strings.Lines(g.mod) {
		if version, ok := strings.CutPrefix(line, "go "); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}

// flags returns the flags of go build. What they have in common with the Makefile makes compiled packages the same.
func (g graph) flags() []string {
	version := g.version(kubernetesModule)
	switch {
	case version == "" && g.main == "":
		return []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-tags=" + Tags, "-ldflags=-s -w"}
	case version == "":
		version = current.version(kubernetesModule)
	}
	// Without these, every component would call itself v0.0.0-master, and kubectl would complain about version skew. Without a number
	// programs with Kubernetes' libraries do not start.
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const pkg = "k8s.io/component-base/version"
	return []string{
		"-mod=readonly", "-trimpath", "-buildvcs=false", "-tags=" + Tags,
		fmt.Sprintf("-ldflags=-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s"+
			" -X %[5]s/internal/version.version=%[6]s", pkg, version, major, minor, helmModule, g.version(helmModule)),
	}
}

// Tags are the build tags that make builds with.
const Tags = "kustomize_disable_go_plugin_support"

// key names the folder of the binaries. It changes with everything of ours that goes into them, so that what lies in a
// folder never has to be checked. The Go version is left out: a newer compiler is no reason to rebuild.
func (g graph) key() string {
	hash := sha256.New()
	for _, part := range append([]string{g.mod, g.sum, runtime.GOOS, runtime.GOARCH}, g.flags()...) {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	hash.Write([]byte(g.main))
	hash.Write([]byte(g.also))
	name := g.version(kubernetesModule)
	switch {
	case name == "" && g.main != "":
		name = "cert-manager-" + g.version(certManagerModule)
	case name == "":
		name = regexp.MustCompile(`(?m)^module \S+/(\S+)$`).FindStringSubmatch(g.mod)[1]
	}
	return name + "-" + hex.EncodeToString(hash.Sum(nil))[:12]
}
