//go:build gitops

package vcenter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// ownPolicy denies nothing.
const ownPolicy = `# METADATA
# title: Nothing
# description: Denies nothing.
package gitops.own

valid_input := true

# METADATA
# title: Never
# custom: {reason: Never, remedy: Wait.}
deny contains {"reason": "Never", "code": 403, "message": "never"} if input.request.name == "never"
`

const ownTest = `package gitops.own_test

import data.gitops.own

test_never if count(own.deny) == 1 with input as {"request": {"name": "never"}}
`

// What Argo CD and Flux have applied is at rest for both: the library of neither finds a difference, kstatus says that it is current, and
// nothing is written.
func TestGitOps(t *testing.T) {
	s := maker(t)
	g := s.gitOps()
	server := &v1alpha1.VSphereServer{}
	server.Name = s.name
	s.Must(stack.Client.Get(t.Context(), client.ObjectKeyFromObject(server), server))
	server.ObjectMeta = metav1.ObjectMeta{Name: s.name}
	server.Spec.Tenants[0].Templates = append(server.Spec.Tenants[0].Templates, "/DC0/vm/images")
	s.vcenter.AddFolder("/DC0/vm/images")
	g.apply(server)
	s.shows(server.DeepCopy(), connected)
	s.machine("adopted")
	adopted, web := s.vm("adopted"), s.made()
	adopted.Spec.RunPolicy, web.Spec.RunPolicy = v1alpha1.RunPolicyAlwaysOff, v1alpha1.RunPolicyAlwaysOn
	disk := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "data"}, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{VSphere: &v1alpha1.VSphereDisk{
			ServerRef: v1alpha1.VSphereServerReference{Name: s.name}, Datastore: "/DC0/datastore/LocalDS_0",
		}},
	}}
	web.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: "VirtualDisk", Name: "data"}}
	policy := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}, Spec: v1alpha1.RegoPolicySpec{
		Package: "gitops.own", Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
			APIGroups: []string{v1alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"virtualmachines"}, Operations: []v1alpha1.MatchOperation{"DELETE"},
		}}},
		Modules: []v1alpha1.PolicyModule{{Name: "own.rego", Source: ownPolicy}},
		Tests:   []v1alpha1.PolicyTest{{Name: "own_test.rego", Source: ownTest}},
	}}
	for _, o := range []client.Object{s.template(s.images().Add("1", vcsim.OVA())), disk, adopted, web, s.following(), policy} {
		g.apply(o)
	}
	s.Cleanup(func() { s.Must(client.IgnoreNotFound(stack.Client.Delete(context.WithoutCancel(s.Context()), policy))) })
	s.until("all is current", g.kstatus, "")
	s.until("nothing is written while both compare", func() string {
		before := g.versions()
		if differences := g.run("diff", g.manifests); differences != "" {
			return differences
		}
		return cmp.Diff(before, g.versions())
	}, "")
}

// gitOps applies objects as Argo CD and Flux do, and compares them.
type gitOps struct {
	*site
	program   string
	manifests []*unstructured.Unstructured
}

func (s *site) gitOps() *gitOps {
	s.Helper()
	g := &gitOps{site: s, program: filepath.Join(s.TempDir(), "gitops")}
	build := exec.CommandContext(s.Context(), "go", "build", "-trimpath", "-modfile=test/walks/vcenter/testdata/gitops/gitops.mod", "-tags=kustomize_disable_go_plugin_support", "-o", g.program, "./test/walks/vcenter/testdata/gitops")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", build, err, out)
	}
	return g
}

// apply adds an object to the manifests, as they would be in Git: without what others fill in.
func (g *gitOps) apply(o client.Object) {
	g.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	g.Must(err)
	manifest := &unstructured.Unstructured{Object: content}
	kinds, _, err := stack.Client.Scheme().ObjectKinds(o)
	g.Must(err)
	manifest.SetGroupVersionKind(kinds[0])
	unstructured.RemoveNestedField(manifest.Object, "status")
	unstructured.RemoveNestedField(manifest.Object, "metadata", "creationTimestamp")
	// Argo CD and Flux mark what they apply.
	manifest.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "fleet:" + manifest.GetKind() + "/" + manifest.GetName()})
	manifest.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"})
	g.manifests = append(g.manifests, manifest)
	g.patiently(func() error {
		if out := g.run("apply", []*unstructured.Unstructured{manifest}); out != "" {
			return fmt.Errorf("applying %s %s: %s", manifest.GetKind(), manifest.GetName(), out)
		}
		return nil
	})
}

// run gives what the program prints, and how it failed.
func (g *gitOps) run(what string, manifests []*unstructured.Unstructured) string {
	g.Helper()
	var in bytes.Buffer
	for _, m := range manifests {
		g.Must(json.NewEncoder(&in).Encode(m))
	}
	command := exec.CommandContext(g.Context(), g.program, what)
	command.Stdin, command.Env = &in, append(os.Environ(), "KUBECONFIG="+stack.Plane.Kubeconfig())
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// live gives the applied objects as they are.
func (g *gitOps) live() (all []*unstructured.Unstructured) {
	g.Helper()
	for _, m := range g.manifests {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(m.GroupVersionKind())
		g.Must(stack.Client.Get(g.Context(), client.ObjectKeyFromObject(m), now))
		all = append(all, now)
	}
	return all
}

// kstatus tells what is not current.
func (g *gitOps) kstatus() string {
	g.Helper()
	var others []string
	for _, o := range g.live() {
		is, err := status.Compute(o)
		g.Must(err)
		if is.Status != status.CurrentStatus {
			others = append(others, fmt.Sprintf("%s %s: %s: %s", o.GetKind(), o.GetName(), is.Status, is.Message))
		}
	}
	return strings.Join(others, "\n")
}

// versions are the resourceVersions.
func (g *gitOps) versions() map[string]string {
	g.Helper()
	all := map[string]string{}
	for _, o := range g.live() {
		all[o.GetKind()+" "+o.GetName()] = o.GetResourceVersion()
	}
	return all
}
