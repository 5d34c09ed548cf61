package undecodable

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/env"
	"sallyport.dev/sallyport/test/env/install"
	"sallyport.dev/sallyport/test/step"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	m.Run()
}

// walk is what the steps share.
type walk struct {
	step.T
	plane     *env.ControlPlane
	client    client.WithWatch
	bin       string
	sallyport *install.Sallyport
	logs      *install.Log
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{T: step.T{T: t}, bin: t.TempDir(), logs: &install.Log{}}
	crds, err := loose()
	w.Must(err)
	w.plane, err = env.Start(context.Background(), env.Options{CRDs: crds})
	w.Must(err)
	t.Cleanup(func() { w.Must(w.plane.Stop()) })
	w.client, err = install.Client(w.plane.Config)
	w.Must(err)
	return w
}

// stored has everything stored that cannot be decoded or listed, and what is as it should be beside it.
func (w *walk) stored(ctx context.Context) {
	for _, name := range []string{"team-a", "team-b"} {
		w.Must(w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, text := range poisoned {
		w.Must(store(ctx, w.client, text))
	}
	w.Must(store(ctx, w.client, machine("team-a", "deep", "1Gi", "")))
	w.Must(store(ctx, w.client, machine("team-b", "fine", "1Gi", "")))
	for _, name := range []string{"deep", "walls"} {
		w.Must(w.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}))
	}
	deep := metav1.ObjectMeta{Namespace: "team-a", Name: "deep"}
	w.Must(deepen(ctx, w.client, &v1alpha1.VirtualMachine{ObjectMeta: deep}))
	w.Must(deepen(ctx, w.client, &corev1.ConfigMap{ObjectMeta: deep}))
	for _, list := range []client.ObjectList{&v1alpha1.VirtualMachineList{}, &v1alpha1.VirtualMachinePoolList{}, &v1alpha1.VSphereServerList{}} {
		if err := w.client.List(ctx, list); err == nil {
			w.Errorf("%T: nothing in it is in the way of a list", list)
		}
	}
}

// What was stored before schemas were bounded, or is nested as no list is decoded, stops nobody: a manager that starts gets ready,
// reconciles the others and judges requests by all policies (controller-runtime#1032, argo-workflows#3677).
func TestObjectsThatCannotBeDecoded(t *testing.T) {
	depth.Only(t)
	w := newWalk(t)
	w.stored(t.Context())
	crds, err := charts.CRDs()
	w.Must(err)
	w.Must(w.plane.InstallCRDs(t.Context(), crds...))

	w.Step("a manager gets ready", func(t step.T) {
		o := install.Options{Logs: w.logs, Values: []string{"rbac.reads.configmaps=true"}}
		o.Binary, err = install.Build(t.Context(), w.bin, "sallyport.dev/sallyport/cmd/sallyport")
		t.Must(err)
		t.Must(install.Plugin(w.bin, o.Binary))
		if w.sallyport, err = install.Start(t.Context(), w.plane, o); err != nil {
			t.Fatalf("%v\n%s", err, install.Tail(w.logs.String(), 30))
		}
		w.Cleanup(func() { w.Must(w.sallyport.Remove()) })
	})
	w.Step("the others are reconciled", func(t step.T) {
		for _, key := range []client.ObjectKey{{Namespace: "team-b", Name: "fine"}, {Namespace: "team-a", Name: "deep"}} {
			vm := &v1alpha1.VirtualMachine{}
			t.Until(key.String()+" is reconciled", func() (string, bool) {
				t.Must(w.client.Get(t.Context(), key, vm))
				return fmt.Sprint(vm.Status), vm.Status.ObservedGeneration > 0
			})
		}
	})
	w.Step("a policy judges by a kind with such an object", w.judged)
	w.Step("each is told of", w.told)
	w.Step("commands go on", w.commands)
	w.Step("one is repaired, one deleted", w.repaired)
	w.Step("release takes the finalizers", w.released)
}

// judged is that the policy decides by the ConfigMaps, and that of its status only what could not be decoded is gone.
func (w *walk) judged(t step.T) {
	t.Until("the policy decides", func() (string, bool) {
		policy := &v1alpha1.RegoPolicy{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: "walls"}, policy); err != nil {
			return err.Error(), false
		}
		c := v1alpha1.ConditionReady.In(policy.Status.Conditions)
		return fmt.Sprint(policy.Status.Conditions), c != nil && c.Status == metav1.ConditionTrue
	})
	service := func(namespace string) error {
		return w.client.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, client.DryRunAll)
	}
	if err := service("team-a"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "there are walls") {
		t.Errorf("behind walls: %v", err)
	}
	t.Must(service("team-b"))

	// A watch that runs goes on, too.
	t.Must(deepen(t.Context(), w.client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "walls"}}))
	t.Must(w.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "walls"}}))
	t.Until("what comes later counts", func() (string, bool) {
		err := service("team-b")
		return fmt.Sprint(err), apierrors.IsForbidden(err)
	})
	if err := service("team-a"); !apierrors.IsForbidden(err) {
		t.Errorf("behind deep walls: %v", err)
	}
}

// told is that there is an event on each object, and that the metric counts them.
func (w *walk) told(t step.T) {
	for field, text := range poisoned {
		o, err := parsed(text)
		t.Must(err)
		t.Must(w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		t.Until("there is an event on "+o.GetKind()+" "+o.GetName(), func() (string, bool) {
			events := &corev1.EventList{}
			t.Must(w.client.List(t.Context(), events, client.MatchingFields{"involvedObject.uid": string(o.GetUID()), "reason": "Undecodable"}))
			if len(events.Items) == 0 {
				return "none", false
			}
			return events.Items[0].Message, strings.Contains(events.Items[0].Message, " cannot be decoded: "+field+": ")
		})
	}
	w.counts(t, map[string]int{"VirtualMachine": 2, "VSphereServer": 1, "VirtualDisk": 1, "VirtualMachinePool": 1, "VirtualMachineOperation": 1, "RegoPolicy": 0})
}

func (w *walk) counts(t step.T, want map[string]int) {
	t.Helper()
	t.Until("the metric counts the objects", func() (string, bool) {
		metrics, err := w.sallyport.Metrics(t.Context())
		t.Must(err)
		for kind, count := range want {
			if line := fmt.Sprintf("sallyport_undecodable_objects{kind=%q} %d\n", kind, count); !strings.Contains(metrics, line) {
				return "no " + line, false
			}
		}
		return "", true
	})
}

// plugin runs the plugin of kubectl, and gives what it prints, errors behind that.
func (w *walk) plugin(t step.T, line string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(w.bin, "kubectl-sallyport"), append(strings.Fields(line), "--kubeconfig", w.plane.Kubeconfig())...)
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	t.Logf("$ kubectl sallyport %s\n%s", line, out.String())
	return out.String(), err
}

func (w *walk) commands(t step.T) {
	for line, c := range map[string]struct {
		fails bool
		says  []string
	}{
		"why svm fine -n team-b":  {says: []string{"fine"}},
		"why svm other -n team-b": {fails: true, says: []string{`"other" not found`}},
		"why svm deep -n team-a":  {says: []string{"deep"}},
		"why svm poison -n team-a": {fails: true, says: []string{
			"error: VirtualMachine team-a/poison cannot be decoded: spec.runtime.vsphere.clone.disks[0].size: ", "kubectl edit virtualmachine.sallyport.dev/poison -n team-a",
		}},
		"why svmpool poison -n team-a": {says: []string{
			"VirtualMachinePool team-a/poison cannot be decoded: spec.virtualMachineTemplate.spec.memory: ", "Allowed now:", "Undecodable",
		}},
		"policies":                       {says: []string{"walls", "operations-supersede"}},
		"release --all --dry-run=client": {says: []string{"remove from ", "Warning: VirtualMachine team-a/time cannot be decoded: status.conditions[0].lastTransitionTime: "}},
	} {
		out, err := w.plugin(t, line)
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", line, err)
		}
		for _, text := range c.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s does not say %s", line, text)
			}
		}
	}
}

// repaired is that the ways out lead out.
func (w *walk) repaired(t step.T) {
	key := []string{"virtualmachine.sallyport.dev", "poison", "-n", "team-a"}
	for _, line := range [][]string{
		{"patch", "virtualmachine.sallyport.dev", "time", "-n", "team-a", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":null}}`},
		append(append([]string{"delete"}, key...), "--wait=false"),
		append(append([]string{"patch"}, key...), "--type=merge", "-p", `{"metadata":{"finalizers":null}}`),
	} {
		if out, errs, code := w.plane.Kubectl(t.Context(), line...); code != 0 {
			t.Fatalf("kubectl %q: %s%s", line, out, errs)
		}
	}
	vm := &v1alpha1.VirtualMachine{}
	t.Until("the repaired machine is reconciled", func() (string, bool) {
		t.Must(w.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "time"}, vm))
		return fmt.Sprint(vm.Status), vm.Status.ObservedGeneration > 0
	})
	w.counts(t, map[string]int{"VirtualMachine": 0})
}

func (w *walk) released(t step.T) {
	t.Must(w.sallyport.Stop())
	if out, err := w.plugin(t, "release --all"); err != nil {
		t.Error(err, out)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachineList"))
	t.Must(w.client.List(t.Context(), list))
	for i := range list.Items {
		if held := list.Items[i].Finalizers; len(held) > 0 {
			t.Errorf("%s has %q", list.Items[i].Name, held)
		}
	}
}
