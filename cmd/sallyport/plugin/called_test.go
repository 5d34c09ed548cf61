package plugin

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The program is the plugin if kubectl calls it, by a link or by a copy.
func TestNamesOfThePlugin(t *testing.T) {
	for command, want := range map[string]string{
		"":                                       "no",
		"sallyport stop web-1":                   "no",
		"/usr/local/bin/sallyport version":       "no",
		"bin/kubectl version":                    "no",
		"kubectl-sallyport":                      "",
		"/home/a/bin/kubectl-sallyport why":      "why",
		"bin/kubectl-sallyport.exe stop a":       "stop a",
		"bin/kubectl_complete-sallyport sto":     "__complete sto",
		"bin/kubectl_complete-sallyport.exe why": "__complete why",
	} {
		got := "no"
		if args, is := Called(strings.Fields(command)); is {
			got = strings.Join(args, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}

// A kubeconfig with an auth-provider, which kubectl knows, is one of the plugin (tilt#1081): the API server decides about the token.
func TestAuthProviderOfAKubeconfig(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." }
	w.Must(os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {auth-provider: {name: oidc, config: {
		client-id: kubernetes, idp-issuer-url: "https://127.0.0.1:1", id-token: %q}}}}]}`, w.plane.Config.Host, part(`{"alg":"none"}`)+part(`{"exp":4102444800}`)), 0o600))
	w.pluginAs(file, "policies", 1, "error: You must be logged in to the server")
}
