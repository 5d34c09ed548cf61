package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/env/install"
)

// What the policy says when it refuses a second Stop: as it ships, and as the walk edits it, twice.
const shipped, edited, reedited = "does not yield to Stop", "gives no way to Stop", "stands in the way of Stop"

// live is how long an edit may take to decide everywhere. It is a second; this is what a machine may take that does other things too.
const live = 10 * time.Second

// TestWalk is what users do with Sallyport from its installation to its end.
func TestWalk(t *testing.T) {
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
	w.step("a policy of their own", (*walk).addsPolicy)
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
	w.Log(w.kubectl("get pods --namespace " + namespace))
	for _, name := range []string{policy, "servers-tenancy", "lib-operations"} {
		w.kubectl("wait rego/" + name + " --for=condition=Ready --timeout=1m")
	}
	if n := len(w.pods()); n != 2 {
		w.Errorf("there are %d replicas", n)
	}
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
	w.until("the second Stop is refused", func() (string, bool) { // once the caches have the first
		r := w.try("", "sallyport", "stop", "web-1", "--dry-run=server", "--namespace", team)
		return r.stdout + r.stderr, r.code != 0
	})
	w.refused("", "sallyport stop web-1 --namespace "+team, "[operations-supersede/OperationInProgress] Stop web-1-stop-", shipped,
		"accepted now: forced Stop, forced Restart")
	w.kubectl("sallyport stop web-1 --force --dry-run=server --namespace " + team)

	w.usual = answers{secondStop: {shipped}, forcedStop: {admitted}, machine: {admitted}, stranger: {"[servers-tenancy/NamespaceNotAllowed]"}}
	w.load = begin(w.whole, func() client.Client {
		c, err := install.Client(w.site.config())
		w.must(err)
		return c
	}, w.questions()...)
	w.lasting("a while", w.usual)
}

// judged returns when both replicas have seen the vCenter, without which they refuse its machines for another reason.
func (w *walk) judged() {
	w.Helper()
	w.until("the vCenter is known to the replicas", func() (string, bool) {
		for range 10 {
			if err := w.client.Create(w.Context(), adopted(team), client.DryRunAll); err != nil {
				return err.Error(), false
			}
		}
		return "", true
	})
}

// edit opens the policy as a user would, in an editor that is a shell command on the file $1.
func (w *walk) edit(command string) {
	w.Helper()
	editor := filepath.Join(w.bin, "editor")
	w.must(os.WriteFile(editor, []byte("#!/bin/sh\nset -e\n"+command+"\n"), 0o700))
	kubectl, _, _ := w.site.tools()
	if r := execute(w.Context(), kubectl, "", w.variables("KUBE_EDITOR="+editor), "edit", "rego", policy); r.code != 0 {
		w.Fatalf("kubectl edit rego %s: exit %d: %s%s", policy, r.code, r.stdout, r.stderr)
	}
}

// reworded is the editor's command that has the policy refuse with other words. Its tests say them too.
func reworded(from, to string) string {
	return fmt.Sprintf(`sed -i 's/%s/%s/g' "$1"`, strings.TrimSuffix(from, " Stop"), strings.TrimSuffix(to, " Stop"))
}

// changes edits the policy under the load and returns when all replicas decide by it: by the old set or the new one, and never
// by anything else; and by the new one from then on.
func (w *walk) changes(what, from, to string, edit func()) {
	w.Helper()
	mark := w.load.now()
	edit()
	saved := time.Now()
	pods := w.pods()
	took := make([]time.Duration, len(pods))
	var all sync.WaitGroup
	for i, pod := range pods {
		all.Go(func() { took[i] = w.decides(pod, to, saved) })
	}
	all.Wait()
	everywhere := time.Now()
	w.load.more(w.T, 3, w.questions())
	w.usual.with(secondStop, from, to).check(w.T, what, w.load.since(mark, time.Time{}))
	w.usual = w.usual.with(secondStop, to)
	w.usual.check(w.T, what+", when both replicas had it", w.load.since(mark, everywhere))
	w.Logf("%s: decides on %s %v ms after kubectl had returned; %d requests meanwhile, none lost",
		what, pods, milliseconds(took), len(w.load.since(mark, time.Time{})))
	if longest := slices.Max(took); longest > live {
		w.Errorf("%s: decided everywhere only after %v", what, longest)
	}
}

func milliseconds(all []time.Duration) (numbers []int64) {
	for _, d := range all {
		numbers = append(numbers, d.Milliseconds())
	}
	return numbers
}

// decides asks one replica until it refuses with those words.
func (w *walk) decides(pod, words string, since time.Time) time.Duration {
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for {
		answer, err := w.ask(w.Context(), pod)
		took := time.Since(since)
		if err == nil && strings.Contains(answer, words) {
			return took
		}
		if took > patience {
			w.Errorf("%s still answers %q (%v), want %q in it", pod, answer, err, words)
			return took
		}
		<-looks.C
	}
}

func (w *walk) edits() {
	// What the user finds in the editor is Rego that can be read, line by line.
	block := `grep -q '^ *source: |' "$1"` + "\n"
	w.changes("kubectl edit", shipped, edited, func() { w.edit(block + reworded(shipped, edited)) })
	w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonCurrentRevision)
	if message := w.shows(v1alpha1.ConditionEdited, metav1.ConditionTrue, v1alpha1.ReasonFieldsEdited); !strings.Contains(message, "spec.modules") {
		w.Errorf("condition Edited does not name the field: %s", message)
	}
	w.changes("another edit", edited, reedited, func() { w.edit(reworded(edited, reedited)) })
	w.changes("an edit that is taken back", reedited, edited, func() { w.edit(reworded(reedited, edited)) })
}

// broken is where in the policy the walk puts something that is no Rego.
func (w *walk) broken() (file string, line int) {
	w.Helper()
	module := w.rego().Spec.Modules[0]
	before, _, found := strings.Cut(module.Source, "\ndeny contains {")
	if !found {
		w.Fatalf("there is no denial in %s", module.Name)
	}
	return module.Name, strings.Count(before, "\n") + 2
}

func (w *walk) breaks() {
	file, line := w.broken()
	active := w.rego().Status.ActiveRevision
	w.throughout("an edit that does not compile", w.usual, func() {
		w.edit(`sed -i '0,/^\( *\)deny contains {$/s//\1deny contains } {/' "$1"`)
		place := fmt.Sprintf("%s:%d:", file, line)
		message := w.shows(v1alpha1.ConditionCompiled, metav1.ConditionFalse, v1alpha1.ReasonCompileFailed)
		if !strings.Contains(message, place) {
			w.Errorf("it does not say where: %q without %q", message, place)
		}
		w.event("RegoPolicy", policy, string(v1alpha1.ReasonCompileFailed), place)
		w.shows(v1alpha1.ConditionActive, metav1.ConditionTrue, v1alpha1.ReasonLastGoodRevision)
	})
	if now := w.rego().Status.ActiveRevision; now != active {
		w.Errorf("revision %s decides, it was %s", now, active)
	}
	w.reads("kubectl sallyport policies", w.try("", "sallyport", "policies"), policy, file)
}

// event waits for an event about an object, with a text in its note.
func (w *walk) event(kind, name, reason, text string) {
	w.Helper()
	w.until(fmt.Sprintf("there is an event %s about %s %s with %q", reason, kind, name, text), func() (string, bool) {
		list := &eventsv1.EventList{}
		w.must(w.client.List(w.Context(), list))
		var others []string
		for _, e := range list.Items {
			if e.Regarding.Kind != kind || e.Regarding.Name != name || e.Reason != reason {
				continue
			}
			if strings.Contains(e.Note, text) {
				w.Logf("event %s: %s", reason, e.Note)
				return "", true
			}
			others = append(others, e.Note)
		}
		return strings.Join(others, "; "), false
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
}

func (w *walk) upgrades() {
	source := w.rego().Spec.Modules[0].Source
	w.throughout("helm upgrade", w.usual, func() {
		w.upgrade("policies."+policy+".timeoutMilliseconds=1500", "policies.servers-tenancy.timeoutMilliseconds=1600")
		w.until("the new values are in both policies", func() (string, bool) {
			other := &v1alpha1.RegoPolicy{}
			w.must(w.client.Get(w.Context(), client.ObjectKey{Name: "servers-tenancy"}, other))
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
		w.mustHelm("upgrade", release, w.site.chart(), "--namespace", namespace, "--reuse-values",
			"--set-json", "policies."+policy+".modules"+broken, "--set-json", "policies.servers-tenancy.modules"+broken)
		message := w.shows(v1alpha1.ConditionShipped, metav1.ConditionFalse, v1alpha1.ReasonCheckFailed)
		if !strings.Contains(message, "walk.rego:1:") {
			w.Errorf("condition Shipped does not say where: %s", message)
		}
		w.event("ConfigMap", "sallyport-policies", string(v1alpha1.ReasonCheckFailed), "walk.rego:1:")
		w.mustHelm("rollback", release, "--namespace", namespace)
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
		w.kubectl("wait rego/" + other + " --for=delete --timeout=1m")
		w.upgrade("policies." + other + ".enabled=true")
		w.kubectl("wait rego/" + other + " --for=create --timeout=1m")
		w.kubectl("wait rego/" + other + " --for=condition=Ready --timeout=1m")
	})
}

// ownPolicy asks for what no shipped policy does: what the requester may do, and one operation, live.
const ownPolicy = `
apiVersion: sallyport.dev/v1alpha1
kind: RegoPolicy
metadata: {name: walk-freeze}
spec:
  package: walk.freeze
  match:
    resources: [{apiGroups: [sallyport.dev], apiVersions: ["*"], resources: [virtualmachines], operations: [CREATE]}]
  reads: [{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachineOperation}]
  modules:
  - name: freeze.rego
    source: |
      # METADATA
      # title: No machines are added while there is an operation of the name "freeze"
      # description: But by those who may read Secrets of all namespaces.
      package walk.freeze

      facts.admin := {"access": {"verb": "get", "group": "", "resource": "secrets", "namespace": "", "name": ""}}

      facts.freeze := {
        "apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachineOperation", "freshness": "live",
        "namespace": input.request.namespace, "name": "freeze",
      }

      valid_input if is_boolean(input.facts.admin)

      # METADATA
      # title: Machines are frozen
      # custom: {reason: Frozen, remedy: Wait.}
      deny contains {"reason": "Frozen", "code": 403, "message": $"no machines are added; may read all Secrets: {input.facts.admin}"} if {
        startswith(input.request.object.metadata.name, "frozen-")
        input.facts.freeze == null
      }
`

func (w *walk) addsPolicy() {
	const frozen = `{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachine, metadata: {name: frozen-1, namespace: ` + team + `},
		spec: {runPolicy: Manual, runtime: {vsphere: {serverRef: {name: walk}, inventoryPath: /DC0/vm/frozen-1}}}}`
	w.throughout("a policy of their own", w.usual, func() {
		w.create(ownPolicy)
		w.until("both replicas decide by it", func() (string, bool) {
			for range 10 {
				r := w.try(frozen, "create", "--dry-run=server", "-f", "-")
				if r.code == 0 || !strings.Contains(r.stderr, "[walk-freeze/Frozen] no machines are added; may read all Secrets: true") {
					return r.stdout + r.stderr, false
				}
			}
			return "", true
		})
		w.kubectl("delete rego walk-freeze")
		w.until("it is forgotten", func() (string, bool) {
			r := w.try(frozen, "create", "--dry-run=server", "-f", "-")
			return r.stderr, r.code == 0
		})
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
	secret := func() *corev1.Secret {
		s := &corev1.Secret{}
		w.must(client.IgnoreNotFound(w.client.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "sallyport-certificate"}, s)))
		return s
	}
	before := secret()
	w.throughout("the rotation of the certificate", w.usual, func() {
		w.kubectl("delete secret sallyport-certificate --namespace " + namespace)
		w.until("another certificate is served by all, and only its authority is trusted", func() (string, bool) {
			now := secret()
			reported := strings.Fields(w.kubectl(`get leases -l sallyport.dev/replica=true -o jsonpath={.items[*].metadata.annotations.sallyport\.dev/certificate} --namespace ` + namespace))
			trusted := w.trusted()
			slices.Sort(reported)
			seen := fmt.Sprintf("a Secret %s, certificates %v are served, %d authorities are trusted", now.UID, reported, trusted)
			return seen, len(now.Data[corev1.TLSCertKey]) > 0 && string(now.Data[corev1.TLSCertKey]) != string(before.Data[corev1.TLSCertKey]) &&
				len(reported) == 2 && len(slices.Compact(reported)) == 1 && trusted == 1
		})
	})
}

// trusted counts the authorities that the API server trusts.
func (w *walk) trusted() int {
	w.Helper()
	clientset, err := kubernetes.NewForConfig(w.site.config())
	w.must(err)
	c, err := clientset.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(w.Context(), "sallyport", metav1.GetOptions{})
	w.must(err)
	return strings.Count(string(c.Webhooks[0].ClientConfig.CABundle), "BEGIN CERTIFICATE")
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
		w.reads("helm install of a second release", r, "A cluster has one Sallyport", "release "+release+" in namespace "+namespace,
			"helm upgrade "+release+" -n "+namespace, "kubectl sallyport release --all")
	})
	w.kubectl("delete namespace " + other + " --ignore-not-found --timeout=2m")
}

func (w *walk) uninstalls() {
	w.lasting("the end", w.usual)
	w.Logf("%d requests in all", w.load.end())
	w.refused("", "sallyport release --all", "web-1")
	w.Log(w.kubectl("sallyport release --all --force"))
	w.mustHelm("uninstall", release, "--namespace", namespace)
	w.site.uninstalled(w.T)
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
	w.until("requests are judged", func() (string, bool) {
		r := w.try(`{apiVersion: sallyport.dev/v1alpha1, kind: VirtualMachineOperation, metadata: {name: try, namespace: default},
			spec: {type: Start, virtualMachineName: nothing}}`, "create", "--dry-run=server", "-f", "-")
		return r.stdout + r.stderr, strings.Contains(r.stderr, "denied the request")
	})
}

func (w *walk) uninstallsAgain() {
	w.kubectl("sallyport release --all")
	w.mustHelm("uninstall", release, "--namespace", namespace)
	w.site.uninstalled(w.T)
	w.kubectl("delete rego --all --timeout=2m")
	w.kubectl("delete crd -l app.kubernetes.io/part-of=sallyport --timeout=2m")
	w.kubectl("delete namespace " + namespace + " --timeout=2m")
}
