package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/step"
)

// fromVariable is the revision of this repository to upgrade from, such as the tag of the release before.
const fromVariable = "SALLYPORT_TEST_UPGRADE_FROM"

// TestUpgrade upgrades Sallyport from another revision, rolls back and upgrades again, while requests are made. Replicas of both run side by
// side during each rollout.
func TestUpgrade(t *testing.T) {
	from := os.Getenv(fromVariable)
	if from == "" {
		t.Skip("needs a revision to upgrade from: make test-upgrade FROM=REVISION")
	}
	w := newWalk(t)
	local := w.site.local()
	if local == nil {
		t.Skip("programs of two revisions run only on a local control plane")
	}
	u := &upgrade{walk: w, chart: w.site.chart(), options: local.options}
	u.oldChart, u.oldOptions = u.revision(from)
	var source string
	w.step("helm install of the revision before", func(w *walk) {
		local.options = u.oldOptions
		args := []string{"install", release, u.oldChart, "--namespace", namespace, "--create-namespace"}
		for _, s := range w.site.settings() {
			args = append(args, "--set", s)
		}
		w.mustHelm(args...)
		w.site.installed(w.T.T)
		w.rolledOut()
		w.watchesMarks()
		w.policyIsReady(policy)
	})
	w.step("requests, and a policy that is edited", func(w *walk) {
		w.requests()
		w.changes("kubectl edit", shipped, edited, func() { w.edit(reworded(shipped, edited)) })
		source = w.rego().Spec.Modules[0].Source
	})
	for _, to := range []struct {
		what    string
		options install.Options
		args    []string
	}{
		{"helm upgrade", u.options, []string{"upgrade", release, u.chart, "--reset-then-reuse-values"}},
		{"helm rollback", u.oldOptions, []string{"rollback", release}},
		{"helm upgrade that keeps the values of before", u.options, []string{"upgrade", release, u.chart, "--reuse-values"}},
	} {
		w.step(to.what, func(w *walk) {
			w.throughout(to.what, w.usual, func() {
				local.kubelet.Options(to.options)
				w.mustHelm(append(to.args, "--namespace", namespace, "--wait", "--timeout", step.Patience.String())...)
				w.rolledOut()
			})
			if now := w.rego().Spec.Modules[0].Source; now != source {
				w.Errorf("the edited module became\n%s", now)
			}
			w.policyIsReady(policy)
			w.oneVersionIsStored()
			w.rests()
		})
	}
	w.step("release and helm uninstall", (*walk).uninstalls)
	w.step("nothing hangs", (*walk).deletes)
}

// upgrade is what is installed before and after.
type upgrade struct {
	*walk
	chart, oldChart     string
	options, oldOptions install.Options
}

// revision checks out another revision and builds its program.
func (u *upgrade) revision(from string) (chart string, o install.Options) {
	u.Helper()
	tree := filepath.Join(u.bin, "from")
	run := func(folder string, args ...string) {
		command := exec.CommandContext(u.Context(), args[0], args[1:]...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			u.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("", "git", "clone", "--quiet", "--shared", "--no-checkout", filepath.Join("..", ".."), tree)
	run(tree, "git", "checkout", "--quiet", from)
	o = u.options
	o.Binary = filepath.Join(u.bin, "sallyport-from")
	run(tree, "go", "build", "-buildvcs=false", "-tags", install.Tags, "-ldflags=-s -w", "-o", o.Binary, "./cmd/sallyport")
	return filepath.Join(tree, "charts", "sallyport"), o
}

// oneVersionIsStored: a CustomResourceDefinition with two could not be upgraded to one that has left the older out.
func (w *walk) oneVersionIsStored() {
	w.Helper()
	for i := range v1alpha1.Kinds {
		name := v1alpha1.Kinds[i].Resource() + "." + v1alpha1.GroupName
		if stored := w.kubectl("get crd " + name + " -o jsonpath={.status.storedVersions[*]}"); stored != v1alpha1.GroupVersion.Version {
			w.Errorf("versions of %s are stored: %s", name, stored)
		}
	}
}

// rests: once all is as this revision would have it, nothing is written any more. The machine that is being stopped is left out: its
// vCenter is asked again and again.
func (w *walk) rests() {
	w.Helper()
	var before map[string]string
	w.Until("nothing is written while requests are made", func() (string, bool) {
		if before == nil {
			before = w.revisions()
		}
		w.more(10)
		now := w.revisions()
		diff := cmp.Diff(before, now)
		before = now
		return diff, diff == ""
	})
}

// revisions are the resource versions of policies and servers, and of the definitions.
func (w *walk) revisions() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, kind := range []string{"RegoPolicyList", "VSphereServerList"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		w.Must(w.client.List(w.Context(), list))
		for i := range list.Items {
			all[list.Items[i].GetKind()+" "+list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
		}
	}
	return all
}
