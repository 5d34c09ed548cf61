package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

const ours, theirs = v1alpha1.VirtualMachineFinalizer, "example.com/theirs"

// manager plays a manager outside of the cluster: it has the leader's Lease, notices that it is to end, goes on a while with what
// managers do, and then gives the Lease up.
type manager struct {
	*world
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	done       chan struct{}
}

func (w *world) manage(d *appsv1.Deployment, atTheEnd func(context.Context)) *manager {
	w.Helper()
	m := &manager{world: w, deployment: d, lease: lease(d.Namespace, leaderName, "the-leader", 15*time.Second), done: make(chan struct{})}
	w.make(m.lease)
	go func() {
		defer close(m.done)
		for w.Context().Err() == nil && m.goesOn(w.Context()) {
			time.Sleep(20 * time.Millisecond) // as often as it looks
		}
		atTheEnd(w.Context())
		m.lease.Spec.HolderIdentity = new("")
		if err := w.Update(w.Context(), m.lease); err != nil && w.Context().Err() == nil {
			w.Errorf("releasing the lease: %v", err)
		}
	}()
	w.Cleanup(func() { <-m.done })
	return m
}

func (m *manager) goesOn(ctx context.Context) bool {
	now := metav1.NewMicroTime(time.Now())
	m.lease.Spec.RenewTime = &now
	if err := m.Update(ctx, m.lease); err != nil && ctx.Err() == nil {
		m.Errorf("renewing the lease: %v", err)
	}
	d := &appsv1.Deployment{}
	return m.Get(ctx, client.ObjectKeyFromObject(m.deployment), d) == nil && ptr.Deref(d.Spec.Replicas, 1) > 0
}

// Everything at once: a manager that puts finalizers back until its very end, more objects than a page has, finalizers of others,
// objects whose deletion waits.
func TestReleaseStopsTheManagerAndStrips(t *testing.T) {
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d := deployment(system, 2)
	deleted, kept := vm(ns, "deleted", ours), vm(ns, "deleted-kept", ours, theirs)
	w.make(d, vm(ns, "web-1", ours), vm(ns, "shared", theirs, ours), vm(ns, "plain"), deleted, kept)
	w.Must(w.Delete(t.Context(), deleted))
	w.Must(w.Delete(t.Context(), kept))
	const many = 520
	var all sync.WaitGroup
	for part := range 8 {
		all.Go(func() {
			for i := part; i < many; i += 8 {
				o := &v1alpha1.VirtualMachineOperation{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: ns, Name: fmt.Sprintf("op-%d", i), Finalizers: []string{v1alpha1.VirtualMachineOperationFinalizer},
					},
					Spec: v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "web-1"},
				}
				if err := w.Create(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	w.Cleanup(func() {
		if err := w.DeleteAllOf(context.Background(), &v1alpha1.VirtualMachineOperation{}, client.InNamespace(ns)); err != nil {
			t.Error(err)
		}
	})
	w.until("there are Pods", func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := w.List(ctx, pods, client.InNamespace(system))
		return len(pods.Items) == 2, err
	})
	var atTheEnd map[string]string
	w.manage(d, func(ctx context.Context) {
		late := vm(ns, "late", ours)
		if err := w.Create(ctx, late); err != nil {
			t.Error(err)
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			plain := vm(ns, "plain")
			if err := w.Get(ctx, client.ObjectKeyFromObject(plain), plain); err != nil {
				return err
			}
			plain.Finalizers = []string{ours}
			return w.Update(ctx, plain)
		})
		if err != nil {
			t.Error(err)
		}
		atTheEnd = w.finalizers()
	})
	w.Cleanup(func() { w.forget(vm(ns, "late")) })

	r := w.plugin("release --all --force", 0,
		"scale Deployment gate-sallyport in namespace "+system+" from 2 to 0",
		"remove from 520 virtualmachineoperations, 4 virtualmachines\n",
		"deployment.apps/gate-sallyport scaled to 0 in namespace "+system+", was 2\n",
		"Waiting for the manager to stop: ", "Lease "+system+"/"+leaderName+", held by the-leader\n",
		"Finalizers removed: 520 virtualmachineoperations, 6 virtualmachines\n",
		"virtualmachine "+ns+"/deleted; its machine stays on its runtime",
		"helm uninstall gate -n "+system+"\n",
		"kubectl scale deployment/gate-sallyport -n "+system+" --replicas=2\n")
	if strings.Contains(r.stdout, "Waiting") {
		t.Errorf("what is waited for is on standard output: %s", r.stdout)
	}
	if got := slices.Collect(maps.Values(atTheEnd)); len(got) != many+6 || slices.Contains(got, "") {
		t.Errorf("at the manager's end some of the %d objects had lost their finalizers already: %v", len(got), atTheEnd)
	}
	want := map[string]string{"svm/web-1": "", "svm/shared": theirs, "svm/plain": "", "svm/deleted-kept": theirs, "svm/late": ""}
	for name, finalizers := range w.finalizers() {
		if finalizers != want[name] {
			t.Errorf("%s has the finalizers %q, want %q", name, finalizers, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("gone are %v", want)
	}

	w.plugin("release --all", 0, "already has 0 replicas", "none to remove", "Finalizers removed: none",
		"--replicas=2  (the default of the chart; the Deployment already had 0)", "helm uninstall gate -n "+system)
}

// Adopted machines are given back before the manager stops, and nothing stops if that takes too long.
func TestReleaseGivesBackWhatWasAdopted(t *testing.T) {
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d, adopted := deployment(system, 1), vm(ns, "web-1", ours)
	adopted.Spec.Runtime = v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Name: "web-1"}}
	adopted.Status.InstanceID = "web-1"
	w.make(d, adopted, vm(ns, "made", ours))
	w.plugin("release --all --dry-run=client", 0, "release 1 adopted machine: remove marks, restore run strategies of KubeVirt")
	w.plugin("release --all --dry-run=client --keep-adopted", 0, "leave 1 adopted machine marked (--keep-adopted)")
	w.plugin("release --all --timeout 1s", 1, "timed out after 1s waiting for the release of 1 adopted machines, such as VirtualMachine "+ns+"/web-1")
	if w.replicasOf(d) != 1 || w.finalizers()["svm/web-1"] != ours {
		t.Error("the manager is stopped, or a finalizer is gone, although a machine is not released")
	}
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(adopted), adopted))
	adopted.Spec.RunPolicy = v1alpha1.RunPolicyManual
	w.Must(w.Update(t.Context(), adopted))
	w.manage(d, func(context.Context) {})
	released := make(chan struct{})
	go func() { // what the manager does of that run policy
		defer close(released)
		err := step.Await(t.Context(), func(ctx context.Context) (bool, error) {
			is := vm(ns, "web-1")
			err := w.Get(ctx, client.ObjectKeyFromObject(is), is)
			if err != nil || is.Spec.RunPolicy != v1alpha1.RunPolicyObserve {
				return false, err
			}
			is.Status.InstanceID = ""
			return true, w.Status().Update(ctx, is)
		})
		if err != nil {
			t.Errorf("waiting for the run policy Observe: %v", err)
		}
	}()
	w.plugin("release --all", 0, "Released adopted machines: 1\n", "Finalizers removed: 2 virtualmachines")
	<-released
}

// occupied are machines in the middle of something.
func occupied(namespace string) []client.Object {
	held, undone := vm(namespace, "web-1", ours), vm(namespace, "web-2", ours)
	held.Status.ActiveOperation = &v1alpha1.ActiveOperation{
		ID: "1", Origin: v1alpha1.OriginOperation, Name: "web-1-stop-x7k2p", Type: v1alpha1.OperationStop,
		ClaimedAt: metav1.NewMicroTime(time.Now().Add(-time.Hour)),
	}
	undone.Status.Undoing = []v1alpha1.UndoingOperation{{
		ID: "2", Origin: v1alpha1.OriginRunPolicy, Type: v1alpha1.OperationStart, End: v1alpha1.EndSuperseded,
	}}
	return []client.Object{held, undone}
}

func TestReleaseRefusesWhileMachinesAreBusy(t *testing.T) {
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d, deleted := deployment(system, 1), vm(ns, "web-3", ours)
	w.make(append(occupied(ns), d, deleted)...)
	w.Must(w.Delete(t.Context(), deleted))
	before := w.finalizers()
	w.plugin("release --all", 1, "In progress:\n",
		ns+"/web-1  claimed by Stop web-1-stop-x7k2p for 60m", ns+"/web-2  run policy (Start) is being undone",
		ns+"/web-3  deletion requested ", "s ago; its machine would stay on its runtime",
		"error: operations or deletions of machines are in progress; wait until they finish (kubectl get svm -A --watch), or continue with --force")
	if got := w.finalizers(); !maps.Equal(got, before) || w.replicasOf(d) != 1 {
		t.Errorf("something was changed: %v, want %v", got, before)
	}
	w.plugin("release --all --force", 0, "In progress:\n", "Finalizers removed: 3 virtualmachines", ns+"/web-3; its machine stays")
	if got := w.finalizers(); len(got) != 2 || got["svm/web-1"]+got["svm/web-2"] != "" || w.replicasOf(d) != 0 {
		t.Errorf("finalizers stay: %v", got)
	}
}

// A machine that gets busy while the manager stops is not interrupted either: the manager goes on.
func TestReleaseStartsTheManagerAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d := deployment(system, 3)
	w.make(d, vm(ns, "web-0", ours))
	w.manage(d, func(context.Context) { w.make(occupied(ns)[0]) })
	w.plugin("release --all", 1, "scaled back to 3 because operations or deletions of machines started in the meantime", "web-1-stop-x7k2p", "with --force")
	if got := w.finalizers(); w.replicasOf(d) != 3 || got["svm/web-0"] != ours || got["svm/web-1"] != ours {
		t.Errorf("it did not stay as it was: %d replicas, %v", w.replicasOf(d), got)
	}
}

func TestReleaseDryRunsChangeNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d := deployment(system, 2)
	w.make(d, vm(ns, "web-1", ours, theirs), lease(system, leaderName, "the-leader", time.Hour))
	before := w.finalizers()
	w.plugin("release --all --dry-run=client", 0, " from 2 to 0", "remove from 1 virtualmachine", "Nothing was changed (dry run)")
	w.plugin("release --all --dry-run=server", 0, "scaled to 0 in namespace "+system+", was 2 (server dry run)",
		"Finalizers removed: 1 virtualmachine (server dry run)")
	if got := w.finalizers(); !maps.Equal(got, before) || w.replicasOf(d) != 2 {
		t.Errorf("it is %v, want %v, with %d replicas", got, before, w.replicasOf(d))
	}
}

func TestReleaseDoesNotChooseBetweenInstallations(t *testing.T) {
	w := newWorld(t)
	a, b := w.namespace(), w.namespace()
	first, second := deployment(a, 1), deployment(b, 1)
	w.make(first, second)
	w.plugin("release --all", 1, "found several Deployments of Sallyport: ", a+"/gate-sallyport", b+"/gate-sallyport", "with -n")
	w.plugin("release --all -n "+b, 0, "helm uninstall gate -n "+b)
	if w.replicasOf(first) != 1 || w.replicasOf(second) != 0 {
		t.Error("the wrong one was stopped")
	}
}

// The chart labels what it makes with another name if it is told to; what has a fixed name tells which.
func TestReleaseFindsAChartOfAnotherName(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	d := deployment(w.namespace(), 1)
	d.Labels[cli.NameLabel], d.Spec.Template.Labels[cli.NameLabel] = "gate", "gate" // the selector shares the map
	w.make(d, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: cli.Product, Labels: map[string]string{cli.NameLabel: "gate"}},
	})
	w.plugin("release --all --dry-run=client", 0, "scale Deployment gate-sallyport in namespace "+d.Namespace+" from 1 to 0")
}

func TestReleaseNeedsRights(t *testing.T) {
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d := deployment(system, 1)
	w.make(d, vm(ns, "web-1", ours))
	nobody := w.userWith("nobody")
	w.pluginAs(nobody, "release --all", 1, "Error from server (Forbidden): finding the Deployment of Sallyport: ", `cannot list resource "deployments"`)
	reader := w.userWith("reader", "get,list deployments.apps,virtualmachines.sallyport.dev,virtualmachineoperations.sallyport.dev,virtualmachinepools.sallyport.dev,virtualdisks.sallyport.dev,vmdiskimages.sallyport.dev,vspheretemplates.sallyport.dev,"+
		"regopolicies.sallyport.dev,vsphereservers.sallyport.dev")
	w.pluginAs(reader, "release --all", 1, "error: missing permissions, nothing was changed: "+
		"patch deployments/scale in API group apps in namespace "+system+"; list pods in namespace "+system+
		"; list leases in API group coordination.k8s.io in all namespaces; patch virtualmachines in API group sallyport.dev in all namespaces")
	if w.replicasOf(d) != 1 || w.finalizers()["svm/web-1"] != ours {
		t.Error("something was changed")
	}
}

// A manager that does not stop keeps its objects; the command can be given again.
func TestReleaseWaitsForTheManager(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	d, held := deployment(system, 1), lease(system, "sallyport-replica-x", "x", time.Hour)
	w.make(d, vm(ns, "web-1", ours), held)
	w.plugin("release --all --timeout 1500ms", 1, "timed out after 1.5s waiting for the manager to stop",
		"Lease "+system+"/sallyport-replica-x, held by x", "run the command again", "--replicas=1")
	if got := w.finalizers()["svm/web-1"]; got != ours {
		t.Errorf("the finalizers of a running manager were taken: %q is left", got)
	}
	// The replica has crashed: nobody renews its Lease any more.
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	held.Spec.LeaseDurationSeconds = new(int32(1))
	w.Must(w.Update(t.Context(), held))
	w.plugin("release --all", 0, "Finalizers removed: 1 virtualmachine")
}

// Somebody starts the manager again while it is waited for.
func TestReleaseNoticesThatTheManagerIsStartedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	system := w.namespace()
	d := deployment(system, 1)
	w.make(d)
	m := w.manage(d, func(ctx context.Context) {
		err := w.Patch(ctx, d.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`)))
		if err != nil {
			t.Error(err)
		}
	})
	w.plugin("release --all", 1, "another client scales the manager up again", "has spec.replicas 5")
	<-m.done
}

// A half uninstalled Sallyport, whose webhooks nobody serves.
func TestReleaseWithoutManager(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	deleted := vm(ns, "web-2", ours)
	w.make(vm(ns, "web-1", ours), deleted)
	w.Must(w.Delete(t.Context(), deleted))
	w.make(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name: cli.Product, Annotations: map[string]string{"meta.helm.sh/release-name": "gate", "meta.helm.sh/release-namespace": "gone"},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.sallyport.dev", AdmissionReviewVersions: []string{"v1"},
			SideEffects:   new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig:  admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/validate")},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "changes-spec", Expression: "request.operation != 'UPDATE' || object.?spec != oldObject.?spec",
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"sallyport.dev"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
		}},
	})
	w.until("the webhook is asked", func(ctx context.Context) (bool, error) {
		return apierrors.IsInternalError(w.Create(ctx, vm(ns, "probe"), client.DryRunAll)), nil
	})
	w.plugin("release --all", 1, "no Deployment found", "but the manager is not running")
	w.plugin("release --all --force", 0, "Finalizers removed: 2 virtualmachines",
		"the API server denies changes to Sallyport's objects", "helm uninstall gate -n gone")
	if got := w.finalizers(); len(got) != 1 || got["svm/web-1"] != "" {
		t.Errorf("left is %v", got)
	}
}

// Policies that are registered for other kinds would have their requests refused until the uninstallation.
func TestReleaseUnregistersPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	w := newWorld(t)
	ns, system := w.namespace(), w.namespace()
	entry := func(name string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name + ".policies.sallyport.dev", AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/validate")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}
	}
	w.make(deployment(system, 1), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cli.PoliciesConfiguration}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: cli.PoliciesConfiguration},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{entry("owners"), entry("images")},
		})
	passes := func(ctx context.Context) bool {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}}
		return !apierrors.IsInternalError(w.Create(ctx, o, client.DryRunAll))
	}
	w.until("the webhooks are asked", func(ctx context.Context) (bool, error) { return !passes(ctx), nil })
	reader := w.userWith("registrar", "get,list deployments.apps,virtualmachines.sallyport.dev,virtualmachineoperations.sallyport.dev,virtualmachinepools.sallyport.dev,virtualdisks.sallyport.dev,vmdiskimages.sallyport.dev,vspheretemplates.sallyport.dev,"+
		"regopolicies.sallyport.dev,vsphereservers.sallyport.dev", "get validatingwebhookconfigurations.admissionregistration.k8s.io")
	w.pluginAs(reader, "release --all", 1, "patch validatingwebhookconfigurations in API group admissionregistration.k8s.io")
	w.plugin("release --all --dry-run=server", 0, "Unregistered on other kinds: images, owners (server dry run)")
	if passes(t.Context()) {
		t.Error("a dry run has unregistered policies")
	}
	w.plugin("release --all", 0, "unregister on other kinds: images, owners\n", "Unregistered on other kinds: images, owners\n")
	w.until("nobody is asked", func(ctx context.Context) (bool, error) { return passes(ctx), nil })
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	w.Must(w.Get(t.Context(), client.ObjectKey{Name: cli.PoliciesConfiguration}, configuration)) // it is the chart's
	r := w.plugin("release --all", 0, "helm uninstall")
	if strings.Contains(r.stdout, "other kinds") {
		t.Errorf("again there is something to unregister: %s", r.stdout)
	}
}

// Definitions that wait for their objects, and none at all.
func TestReleaseWithoutDefinitions(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	plane, err := env.Start(t.Context(), env.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorldOn(t, plane)
	w.plugin("release --all", 0, "none to remove", "Finalizers removed: none")

	crds, err := charts.CRDs()
	w.Must(err)
	w.Must(plane.InstallCRDs(t.Context(), crds...))
	w.Must(w.Create(t.Context(), vm("default", "web-1", ours)))
	_, errs, code := plane.Kubectl(t.Context(), "delete", "crd", "--wait=false", "virtualmachines.sallyport.dev")
	if code != 0 {
		t.Fatal(errs)
	}
	w.until("the machine is being deleted", func(ctx context.Context) (bool, error) {
		o := vm("default", "web-1")
		err := w.Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.DeletionTimestamp != nil, err
	})
	w.plugin("release --all --force", 0, "Finalizers removed: 1 virtualmachine", "default/web-1; its machine stays")
	w.until("the definition is gone", func(ctx context.Context) (bool, error) {
		_, _, code := plane.Kubectl(ctx, "get", "crd", "virtualmachines.sallyport.dev")
		return code != 0, nil
	})
}
