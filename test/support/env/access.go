package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// tokenLifetime outlasts any test, and a demo that is left open over night.
const tokenLifetime = 24 * time.Hour

// UserConfig returns a configuration that authenticates as a user with a client certificate.
func (cp *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	cp.usersMu.Lock()
	defer cp.usersMu.Unlock()
	// A negative QPS is no limit: a local API server needs no protection from its tests.
	user, err := cp.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	return user.Config(), nil
}

// UserKubeconfig returns the path of a kubeconfig file for UserConfig, which lasts until Stop.
func (cp *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	config, err := cp.UserConfig(name, groups...)
	if err != nil {
		return "", err
	}
	return cp.newKubeconfig(config)
}

// ServiceAccountConfig returns a configuration that authenticates as an existing ServiceAccount with a token.
func (cp *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	request, err := cp.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(cp.Config)
	config.BearerToken = request.Status.Token
	return config, nil
}

// ServiceAccountKubeconfig returns the path of a kubeconfig file for ServiceAccountConfig, which lasts until Stop.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := cp.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	return cp.newKubeconfig(config)
}

func (cp *ControlPlane) newKubeconfig(config *rest.Config) (string, error) {
	file, err := os.CreateTemp(string(cp.dir), "kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return file.Name(), writeKubeconfig(file.Name(), config)
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "sallyport-env"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	if err := clientcmd.WriteToFile(*content, path); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// Kubectl runs kubectl as the administrator. It returns both outputs and the exit code, which is -1 when kubectl could not
// be run or was ended by ctx; the reason is then the last line of stderr.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) (stdout, stderr string, exitCode int) {
	return cp.KubectlAs(ctx, cp.kubeconfig, nil, args...)
}

// KubectlAs runs kubectl with a kubeconfig file, such as UserKubeconfig returns, and a standard input, which may be nil.
func (cp *ControlPlane) KubectlAs(
	ctx context.Context, kubeconfig string, stdin io.Reader, args ...string,
) (stdout, stderr string, exitCode int) {
	return execute(ctx, "kubectl", cp.Assets.Kubectl, cp.kubectlVariables(kubeconfig), stdin, args)
}

// KubectlTo is KubectlAs with both outputs in one, as they come. Of a ctx that has ended it says nothing there.
func (cp *ControlPlane) KubectlTo(ctx context.Context, kubeconfig string, stdin io.Reader, out io.Writer, args ...string) (exitCode int) {
	exitCode, reason := executeTo(ctx, "kubectl", cp.Assets.Kubectl, cp.kubectlVariables(kubeconfig), stdin, out, out, args)
	if ctx.Err() == nil {
		_, _ = io.WriteString(out, reason)
	}
	return exitCode
}

// kubectlVariables are its environment. The user's cache could hold what another control plane once served on this port, and the
// user's preferences could be anything.
func (cp *ControlPlane) kubectlVariables(kubeconfig string) []string {
	return append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+cp.dir.path("kubectl-cache"), "KUBERC=off")
}

// execute runs a program that is called name in its last words.
func execute(
	ctx context.Context, name, path string, variables []string, stdin io.Reader, args []string,
) (stdout, stderr string, exitCode int) {
	var out, errOut strings.Builder
	exitCode, reason := executeTo(ctx, name, path, variables, stdin, &out, &errOut, args)
	return out.String(), errOut.String() + reason, exitCode
}

// executeTo gives a reason, a line, if the program could not be run to its end.
func executeTo(
	ctx context.Context, name, path string, variables []string, stdin io.Reader, out, errOut io.Writer, args []string,
) (exitCode int, reason string) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = stdin, out, errOut, variables
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, ""
	case ctx.Err() == nil && errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), ""
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return -1, name + ": " + err.Error() + "\n"
}
