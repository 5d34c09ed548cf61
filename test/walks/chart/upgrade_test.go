package chart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// TestUpgrade upgrades Sallyport from another revision, rolls back and upgrades again, while requests are made. Replicas of both run side by
// side during each rollout.
func TestUpgrade(t *testing.T) {
	from := os.Getenv(install.FromVariable)
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
	var f *fleet
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
	w.step("machines of a vCenter", func(w *walk) { f = w.machines() })
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
			w.untouched(f)
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
	run("", "git", "clone", "--quiet", "--shared", "--no-checkout", filepath.Join("..", "..", ".."), tree)
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

// fleet is a vCenter with machines that nobody has a reason to touch, and what it was like when they were as they should be.
type fleet struct {
	vcenter *vcsim.VCenter
	before  map[string]any
}

// machines has the team adopt two machines of a vCenter that answers, of which one is to be on and the other is switched off by an operation.
func (w *walk) machines() *fleet {
	w.Helper()
	vcenter, err := vcsim.Start(vcsim.Options{})
	w.Must(err)
	context.AfterFunc(w.whole, vcenter.Close)
	password, _ := vcenter.User().Password()
	w.kubectl("create secret generic fleet-login --namespace "+namespace+" --from-literal=username="+vcenter.User().Username(), "--from-literal=password="+password)
	w.create(fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VSphereServer
metadata: {name: fleet}
spec:
  url: %s
  trust: {thumbprint: "%s"}
  credentialsSecretRef: {name: fleet-login}
  tenants:
  - {name: team, namespaces: {names: [%s]}, folders: [/DC0/vm], adopt: true}
`, vcenter.URL(), vcenter.Thumbprint(), team))
	for name, policy := range map[string]v1alpha1.RunPolicy{"kept-on": v1alpha1.RunPolicyAlwaysOn, "kept-off": v1alpha1.RunPolicyManual} {
		path, err := vcenter.AddMachine(name)
		w.Must(err)
		vcenter.SetPower(path, v1alpha1.PowerRunning)
		w.create(fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: %s, namespace: %s}
spec: {runPolicy: %s, runtime: {vsphere: {serverRef: {name: fleet}, inventoryPath: %s}}}
`, name, team, policy, path))
		w.kubectl("wait svm/" + name + " --for=condition=Ready --timeout=3m --namespace " + team)
	}
	w.kubectl("sallyport stop kept-off --force --namespace " + team)
	w.Until("one machine is off, and both are as they should be", func() (string, bool) {
		shown := w.kubectl("get svm kept-on kept-off -o jsonpath={.items[*].status.phase} --namespace " + team)
		return shown, shown == "Running Stopped"
	})
	f := &fleet{vcenter: vcenter}
	f.before = f.look()
	return f
}

// untouched reports machines of the vCenter that are not as they were.
func (w *walk) untouched(f *fleet) {
	w.Helper()
	if diff := cmp.Diff(f.before, f.look()); diff != "" {
		w.Errorf("machines were touched (-before +after):\n%s", diff)
	}
}

// look gives what the machines are like, with their changeVersions.
func (f *fleet) look() map[string]any {
	all := map[string]any{}
	for _, path := range f.vcenter.Machines() {
		all[path], all[path+" version"] = f.vcenter.State(path), f.vcenter.Version(path)
	}
	return all
}

// rests: once all is as this revision would have it, nothing is written any more. The machine that is being stopped is left out, with its
// operation: its vCenter is asked again and again.
func (w *walk) rests() {
	w.Helper()
	var before map[string]string
	w.Until("nothing is written while requests are made", func() (string, bool) {
		if before == nil {
			before = w.revisions()
		}
		w.more(50)
		now := w.revisions()
		diff := cmp.Diff(before, now)
		before = now
		return diff, diff == ""
	})
}

// revisions are the resource versions of all objects of our kinds.
func (w *walk) revisions() map[string]string {
	w.Helper()
	all := map[string]string{}
	for i := range v1alpha1.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kinds[i].Name + "List"))
		w.Must(w.client.List(w.Context(), list))
		for _, o := range list.Items {
			if !strings.HasPrefix(o.GetName(), "web-1") {
				all[o.GetKind()+" "+o.GetName()] = o.GetResourceVersion()
			}
		}
	}
	return all
}
