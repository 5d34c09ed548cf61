package env

import (
	"context"
	_ "embed" // for the wrapper module below
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The wrapper module that Helm is built in, apart from the control plane's, whose requirements would mix with its own;
// helm-bump.sh writes both files.
var (
	//go:embed helm.mod
	helmMod string
	//go:embed helm.sum
	helmSum string
)

const helmModule = "helm.sh/helm/v4"

var helmProgram = program{name: "helm", pkg: helmModule + "/cmd/helm", module: helmModule, minutes: 2}

// HelmVersion returns the version of Helm that Helm builds, such as v4.5.6.
func HelmVersion() string { return requiredVersion(helmMod, helmModule) }

func helmWrapper() wrapper {
	return wrapper{
		folder: "helm", mod: helmMod, sum: helmSum, module: helmModule,
		flags: []string{
			"-mod=readonly", "-trimpath", "-buildvcs=false",
			"-ldflags=-s -w -X helm.sh/helm/v4/internal/version.version=" + HelmVersion(),
		},
	}
}

// Helm returns the path of the Helm program and builds it if it is missing, as Binaries does with a control plane's: once,
// into a folder below os.UserCacheDir() that belongs to the version of Helm and its build list.
func Helm(ctx context.Context, logf func(format string, args ...any)) (path string, err error) {
	b, err := newBuilder(helmWrapper(), logf)
	if err != nil {
		return "", err
	}
	if err := b.ensure(ctx, []program{helmProgram}); err != nil {
		return "", err
	}
	return filepath.Join(b.dir, helmProgram.name), nil
}

// Helm runs Helm as the administrator, as Kubectl runs kubectl. It is built if it is missing, and knows nothing of the user's
// own Helm: its plugins, repositories and variables.
func (cp *ControlPlane) Helm(ctx context.Context, args ...string) (stdout, stderr string, exitCode int) {
	return cp.HelmAs(ctx, cp.kubeconfig, args...)
}

// HelmAs runs Helm with a kubeconfig file, such as UserKubeconfig returns.
func (cp *ControlPlane) HelmAs(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, exitCode int) {
	path, err := Helm(ctx, nil)
	if err != nil {
		return "", "helm: " + err.Error() + "\n", -1
	}
	variables := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "HELM_") })
	variables = append(variables, "KUBECONFIG="+kubeconfig)
	for _, folder := range []string{"CACHE", "CONFIG", "DATA"} {
		variables = append(variables, "HELM_"+folder+"_HOME="+cp.dir.path("helm-"+strings.ToLower(folder)))
	}
	return execute(ctx, "helm", path, variables, nil, args)
}
