package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// What the policy says when it refuses a second Stop: as it ships, and as the walk edits it, twice.
const shipped, edited, reedited = "stop is not allowed", "stop is not possible", "stop is not admitted"

// live is how long an edit may take to decide everywhere. It is a second, and on a machine that is busy with other tests no more than this.
const live = time.Minute

// TestWalk is what users do with Sallyport from its installation to its end.
func TestWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	t.Parallel()
	w := newWalk(t)
	w.step("helm install", (*walk).installs)
	w.step("a refused and an admitted request", (*walk).requests)
	w.step("an edit of a policy", (*walk).edits)
	w.step("an edit that does not compile", (*walk).breaks)
	w.step("replicas restart while a policy is broken", (*walk).restartsBroken)
	w.step("the policy is repaired", (*walk).repairs)
	w.step("helm upgrade keeps the edit", (*walk).upgrades)
	w.step("the edit is given back", (*walk).resets)
	w.step("helm upgrade to policies that do not compile", (*walk).upgradesBroken)
	w.step("a shipped policy is switched off and on", (*walk).switches)
	w.step("the leader is deleted", (*walk).losesLeader)
	w.step("the certificate is rotated", (*walk).rotates)
	w.step("a second release", (*walk).installsAgain)
	w.step("release and helm uninstall", (*walk).uninstalls)
	w.step("nothing hangs", (*walk).deletes)
	w.step("helm install once more", (*walk).reinstalls)
	w.step("roles are exactly what is used", (*walk).rights)
	w.step("release and helm uninstall once more", (*walk).uninstallsAgain)
}

func (w *walk) installs() {
	w.install()
	w.watchesMarks()
	w.Log(w.kubectl("get pods --namespace " + namespace))
	for _, name := range []string{policy, "servers-tenancy", "lib-operations"} {
		w.policyIsReady(name)
	}
	if n := len(w.pods()); n != 2 {
		w.Errorf("there are %d replicas", n)
	}
}

// policyIsReady waits for a policy, which the leader may still have to apply when the replicas are ready.
func (w *walk) policyIsReady(name string) {
	w.kubectl("wait rego/" + name + " --for=create --timeout=3m")
	w.kubectl("wait rego/" + name + " --for=condition=Ready --timeout=3m")
}

func (w *walk) requests() {
	w.kubectl("create namespace " + team)
	w.kubectl("create namespace " + strangers)
	w.kubectl("create secret generic walk-login --namespace " + namespace + " --from-literal=username=walker --from-literal=password=no-door-opens")
	// Nobody answers there, so that what is under way stays under way.
	w.create(fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VSphereServer
metadata: {name: walk}
spec:
  url: https://127.0.0.1:1
  trust: {thumbprint: "%s00"}
  credentialsSecretRef: {name: walk-login}
  tenants:
  - {name: team, namespaces: {names: [%s]}, folders: [/DC0/vm], adopt: true}
`, strings.Repeat("00:", 31), team))
	w.judged()
	w.create(fmt.Sprintf(`
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: web-1, namespace: %s}
spec: {runPolicy: Manual, runtime: {vsphere: {serverRef: {name: walk}, inventoryPath: /DC0/vm/web-1}}}
`, team))
	w.kubectl("sallyport stop web-1 --namespace " + team)
	w.Until("the second Stop is refused", func() (string, bool) { // once the caches have the first
		r := w.try("", "sallyport", "stop", "web-1", "--dry-run=server", "--namespace", team)
		return r.stdout + r.stderr, r.code != 0
	})
	w.refused("sallyport stop web-1 --namespace "+team, "[operations-supersede/OperationInProgress] VirtualMachine web-1: "+shipped+" because Stop web-1-stop-",
		"allowed now: stop --force, restart --force")
	w.kubectl("sallyport stop web-1 --force --dry-run=server --namespace " + team)

	w.usual = install.Answers{secondStop: {shipped}, forcedStop: {install.Admitted}, machine: {install.Admitted}, stranger: {"[servers-tenancy/NamespaceNotAllowed]"}}
	var err error
	w.load, err = install.NewLoad(w.whole, w.site.config(), w.questions()...)
	w.Must(err)
	w.lasting("a while", w.usual)
}

// judged returns when both replicas have seen the vCenter, without which they refuse its machines for another reason.
func (w *walk) judged() {
	w.Helper()
	w.Until("the vCenter is known to the replicas", func() (string, bool) {
		for range 10 {
			if err := w.client.Create(w.Context(), adopted(team), client.DryRunAll); err != nil {
				return err.Error(), false
			}
		}
		return "", true
	})
}

func (w *walk) restartsBroken() {
	before := w.pods()
	w.throughout("a restart while a policy is broken", w.usual, func() {
		w.kubectl("rollout restart deployment/" + release + " --namespace " + namespace)
		w.rolledOut()
	})
	for _, pod := range w.pods() {
		if slices.Contains(before, pod) {
			w.Errorf("%s was not restarted", pod)
		}
		if answer, err := w.ask(w.Context(), pod); err != nil || !strings.Contains(answer, edited) {
			w.Errorf("%s answers %q (%v) since its start, want %q in it", pod, answer, err, edited)
		}
	}
	w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonLastGoodRevision)
}

func (w *walk) repairs() {
	w.changes("the repair", edited, reedited, func() {
		w.edit(`sed -i 's/deny contains } {/deny contains {/' "$1"` + "\n" + reworded(edited, reedited))
	})
	w.shows(v1alpha1.ConditionCompiled, metav1.ConditionTrue, v1alpha1.ReasonCompiled)
	w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonCurrentRevision)
	w.kubectl("sallyport policies reset policies-self")
}

func (w *walk) upgrades() {
	source := w.rego().Spec.Modules[0].Source
	w.throughout("helm upgrade", w.usual, func() {
		w.upgrade("policies."+policy+".timeoutMilliseconds=1500", "policies.servers-tenancy.timeoutMilliseconds=1600")
		w.Until("the new values are in both policies", func() (string, bool) {
			other := &v1alpha1.RegoPolicy{}
			w.Must(w.client.Get(w.Context(), client.ObjectKey{Name: "servers-tenancy"}, other))
			a, b := w.rego().Spec.TimeoutMilliseconds, other.Spec.TimeoutMilliseconds
			return fmt.Sprintf("%d, %d", a, b), a == 1500 && b == 1600
		})
	})
	if now := w.rego().Spec.Modules[0].Source; now != source {
		w.Errorf("the edited module became\n%s", now)
	}
	message := w.shows(v1alpha1.ConditionEdited, metav1.ConditionTrue, v1alpha1.ReasonFieldsEdited)
	if !strings.Contains(message, "spec.modules") || strings.Contains(message, "timeoutMilliseconds") {
		w.Errorf("condition Edited says %q", message)
	}
	w.Log(w.kubectl("sallyport policies"))
}

func (w *walk) resets() {
	w.changes("kubectl sallyport policies reset", reedited, shipped, func() { w.kubectl("sallyport policies reset " + policy) })
	w.shows(v1alpha1.ConditionEdited, metav1.ConditionFalse, v1alpha1.ReasonAsShipped)
	if timeout := w.rego().Spec.TimeoutMilliseconds; timeout != 1500 {
		w.Errorf("the reset took the value of the upgrade along: %d", timeout)
	}
}

// upgradesBroken: what the release ships is checked before it is applied, and people are told where they look for it.
func (w *walk) upgradesBroken() {
	before := w.rego().Spec
	const broken = `=[{"name": "walk.rego", "source": "package"}]`
	w.throughout("helm upgrade to policies that do not compile", w.usual, func() {
		r := w.helm("upgrade", release, w.site.chart(), "--namespace", namespace, "--reuse-values", "--wait", "--timeout", "8s",
			"--set-json", "policies."+policy+".modules"+broken, "--set-json", "policies.servers-tenancy.modules"+broken)
		if r.code == 0 {
			w.Errorf("helm upgrade --wait succeeds: %s", r.stdout)
		}
		w.Until("the replica that does not get ready says why", func() (string, bool) {
			seen := w.kubectl("events --types=Warning --namespace " + namespace)
			return seen, strings.Contains(seen, "RegoPolicy "+policy+": Release ") && strings.Contains(seen, "walk.rego:1:")
		})
		message := w.shows(v1alpha1.ConditionShipped, metav1.ConditionFalse, v1alpha1.ReasonCheckFailed)
		if !strings.Contains(message, "walk.rego:1:") {
			w.Errorf("condition Shipped does not say where: %s", message)
		}
		w.event("ConfigMap", "sallyport-policies", string(v1alpha1.ReasonCheckFailed), "walk.rego:1:")
		w.mustHelm("rollback", release, "--namespace", namespace, "--wait", "--timeout", step.Patience.String())
		w.rolledOut()
		w.shows(v1alpha1.ConditionShipped, metav1.ConditionTrue, v1alpha1.ReasonShipped)
	})
	if diff := cmp.Diff(before, w.rego().Spec); diff != "" {
		w.Errorf("the policy has changed (-before +after):\n%s", diff)
	}
}

func (w *walk) switches() {
	const other = "operations-applicability"
	w.throughout("a policy that is switched off and on", w.usual, func() {
		w.upgrade("policies." + other + ".enabled=false")
		w.kubectl("wait rego/" + other + " --for=delete --timeout=3m")
		w.upgrade("policies." + other + ".enabled=true")
		w.policyIsReady(other)
	})
}

func (w *walk) losesLeader() {
	leader := w.pods()[0]
	w.throughout("the end of the leader", w.usual, func() {
		w.kubectl("delete pod " + leader + " --wait --namespace " + namespace)
		w.rolledOut()
	})
	if slices.Contains(w.pods(), leader) {
		w.Errorf("%s is still there", leader)
	}
}

func (w *walk) rotates() {
	clientset, err := kubernetes.NewForConfig(w.site.config())
	w.Must(err)
	served := func() (seen, one string) {
		c, err := install.ReadCertificates(w.Context(), clientset)
		w.Must(err)
		return fmt.Sprintf("certificates %v are served, %d authorities are trusted", c.Served, c.Trusted), c.One(2)
	}
	before := ""
	w.Until("one certificate is served", func() (seen string, _ bool) {
		seen, before = served()
		return seen, before != ""
	})
	w.throughout("the rotation of the certificate", w.usual, func() {
		w.kubectl("delete secret sallyport-certificate --namespace " + namespace)
		w.Until("another certificate is served by all, and only its authority is trusted", func() (string, bool) {
			seen, now := served()
			return seen, now != "" && now != before
		})
		w.kubectl("get secret sallyport-certificate --namespace " + namespace)
	})
}

func (w *walk) installsAgain() {
	const other = "sallyport-other"
	w.throughout("the attempt to install a second release", w.usual, func() {
		args := []string{"install", other, w.site.chart(), "--namespace", other, "--create-namespace"}
		for _, s := range w.site.settings() {
			args = append(args, "--set", s)
		}
		r := w.helm(args...)
		if r.code == 0 {
			w.Errorf("a second release was installed: %s", r.stdout)
		}
		w.reads("helm install of a second release", r, "A cluster can have only one Sallyport", "release "+release+" in namespace "+namespace,
			"helm upgrade "+release+" -n "+namespace, "kubectl sallyport release --all")
	})
	w.kubectl("delete namespace " + other + " --ignore-not-found --timeout=2m")
}

func (w *walk) uninstalls() {
	w.lasting("the end", w.usual)
	w.Logf("%d requests in all", w.load.End())
	w.refused("sallyport release --all", "web-1")
	if w.marked.Load() {
		w.Error("a policy was marked as one that nobody decides by, while replicas did")
	}
	w.Log(w.kubectl("sallyport release --all --force"))
	w.unattended()
	w.mustHelm("uninstall", release, "--namespace", namespace)
	w.site.uninstalled(w.T.T)
}

// unattended waits until kubectl shows that nobody decides.
func (w *walk) unattended() {
	w.Helper()
	w.Until("the policies show that nobody decides", func() (string, bool) {
		table := w.kubectl("get rego")
		return table, strings.Contains(table, "NobodyDecides") && !strings.Contains(table, "CurrentRevision")
	})
	r := w.try("", "sallyport", "policies")
	w.reads("kubectl sallyport policies", r, "Warning: no replica of Sallyport is serving: no policy is evaluated at the moment")
	if strings.Contains(r.stdout, " current ") {
		w.Errorf("policies are shown as current:\n%s", r.stdout)
	}
}

// watchesMarks notes whether a policy is ever marked as one that nobody decides by.
func (w *walk) watchesMarks() {
	w.Helper()
	changes, err := w.client.Watch(w.whole, &v1alpha1.RegoPolicyList{})
	w.Must(err)
	marked := w.marked
	go func() {
		for change := range changes.ResultChan() {
			object, ok := change.Object.(*v1alpha1.RegoPolicy)
			if ok && meta.IsStatusConditionPresentAndEqual(object.Status.Conditions, string(v1alpha1.ConditionActive), metav1.ConditionFalse) &&
				meta.FindStatusCondition(object.Status.Conditions, string(v1alpha1.ConditionActive)).Reason == string(v1alpha1.ReasonNobodyDecides) {
				marked.Store(true)
			}
		}
	}()
}

// deletes deletes everything, each of which waits for its end.
func (w *walk) deletes() {
	for _, what := range []string{
		"svmop --all --all-namespaces", "svm --all --all-namespaces", "svsrv --all", "rego --all",
		"crd -l app.kubernetes.io/part-of=sallyport", "namespace " + namespace + " " + team + " " + strangers,
	} {
		w.kubectl("delete " + what + " --timeout=2m")
	}
	for _, kind := range []string{"crd", "clusterrole", "clusterrolebinding", "validatingwebhookconfiguration", "mutatingwebhookconfiguration", "namespace"} {
		if left := w.kubectl("get " + kind + " -o name"); strings.Contains(left, "sallyport") {
			w.Errorf("left are %s", left)
		}
	}
}

func (w *walk) reinstalls() {
	w.install()
	w.Until("requests are judged", func() (string, bool) {
		r := w.try(document+`{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachineOperation, metadata: {name: try, namespace: default},
			spec: {type: Start, virtualMachineName: nothing}}`, "create", "--dry-run=server", "-f", "-")
		return r.stdout + r.stderr, strings.Contains(r.stderr, "denied the request")
	})
}

func (w *walk) uninstallsAgain() {
	w.policyIsReady(policy)
	const scale = "scale deployment/" + release + " --namespace " + namespace + " --replicas="
	w.kubectl(scale + "0")
	w.unattended()
	w.kubectl(scale + "2")
	w.policyIsReady(policy)
	w.rolledOut()
	w.kubectl("sallyport release --all")
	w.unattended()
	w.mustHelm("uninstall", release, "--namespace", namespace)
	w.site.uninstalled(w.T.T)
	w.kubectl("delete rego --all --timeout=2m")
	w.kubectl("delete crd -l app.kubernetes.io/part-of=sallyport --timeout=2m")
	w.kubectl("delete namespace " + namespace + " --timeout=2m")
}
