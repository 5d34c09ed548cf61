package env

import (
	"context"
	"os"
	"slices"
	"strings"
)

// Helm runs Helm as the administrator, as Kubectl runs kubectl. It is built if it is missing, and knows nothing of the user's
// own Helm: its plugins, repositories and variables.
func (cp *ControlPlane) Helm(ctx context.Context, args ...string) (stdout, stderr string, exitCode int) {
	return cp.HelmAs(ctx, cp.kubeconfig, args...)
}

// HelmAs runs Helm with a kubeconfig file, such as UserKubeconfig returns.
func (cp *ControlPlane) HelmAs(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, exitCode int) {
	path, err := cp.helmPath(ctx)
	if err != nil {
		return "", "helm: " + err.Error() + "\n", -1
	}
	variables := slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "HELM_") })
	variables = append(variables, "KUBECONFIG="+kubeconfig)
	for _, folder := range []string{"CACHE", "CONFIG", "DATA"} {
		variables = append(variables, "HELM_"+folder+"_HOME="+cp.dir.path("helm-"+strings.ToLower(folder)))
	}
	return execute(ctx, helmName, path, variables, nil, args)
}

func (cp *ControlPlane) helmPath(ctx context.Context) (path string, err error) {
	cp.helmMu.Lock()
	defer cp.helmMu.Unlock()
	if cp.helm == "" {
		cp.helm, err = Helm(ctx, nil)
	}
	return cp.helm, err
}
