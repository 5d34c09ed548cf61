package install

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/step"
)

// kubeletFixture is a release whose pods run.
type kubeletFixture struct {
	*testing.T
	*Sallyport
	options Options
	kubelet *Kubelet
}

func newKubeletFixture(t *testing.T) *kubeletFixture {
	t.Helper()
	binary, err := Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/sallyport")
	if err != nil {
		t.Fatal(err)
	}
	plane, err := env.Start(t.Context(), env.Options{ControllerManager: true, ControllerManagerFlags: ControllerManagerFlags()})
	if err != nil {
		t.Fatal(err)
	}
	f := &kubeletFixture{T: t}
	if f.Sallyport, err = Prepare(t.Context(), plane); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Remove() })
	logs := &Log{}
	f.options = Options{Binary: binary, Logs: logs, Flags: []string{"--decision-records", "off", "--shutdown-delay", "0s"}}
	if f.kubelet, err = f.NewKubelet(t.Context(), f.options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the pods:\n%s\nthe end of what the managers logged:\n%s", f.kubelet.Describe(context.WithoutCancel(t.Context())), Tail(logs.String(), 50))
		}
		_ = f.kubelet.Close()
	})
	return f
}

func (f *kubeletFixture) until(what string, is func() bool) {
	f.Helper()
	err := step.Await(f.Context(), func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		f.Fatalf("waiting until %s: %v", what, err)
	}
}

// pods are those that the API server has, which are to run here.
func (f *kubeletFixture) pods() []corev1.Pod {
	f.Helper()
	list, err := f.clientset.CoreV1().Pods(Namespace).List(f.Context(), metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return list.Items
}

// serves returns when two replicas judge, asked through the API server and past it.
func (f *kubeletFixture) serves() {
	f.Helper()
	f.until("two pods are ready", func() bool {
		ready := 0
		for _, p := range f.pods() {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
				ready++
			}
		}
		return ready == 2 && len(f.kubelet.Replicas()) == 2
	})
	if err := f.AwaitJudgement(f.Context()); err != nil {
		f.Fatal(err)
	}
	review, err := Creation(object("VirtualMachineOperation", map[string]any{"type": "Start", "virtualMachineName": "nothing"}), "somebody")
	if err != nil {
		f.Fatal(err)
	}
	for _, replica := range f.kubelet.Replicas() { // a replica has a new policy a moment after another
		f.until(replica+" judges", func() bool {
			response, err := f.kubelet.Ask(f.Context(), replica, review)
			if err != nil {
				f.Fatal(err)
			}
			return strings.Contains(Answered(response), "VirtualMachine nothing does not exist")
		})
	}
}

func TestKubelet(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	f := newKubeletFixture(t)
	f.serves()

	// A process that ends by itself is started again, in the same pod.
	replica := f.kubelet.Replicas()[0]
	manager, err := f.kubelet.Manager(replica)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	f.until("the pod has been restarted", func() bool {
		return slices.ContainsFunc(f.pods(), func(p corev1.Pod) bool {
			return p.Name == replica && p.Status.ContainerStatuses[0].RestartCount == 1
		})
	})
	f.serves()

	// Another installation has another ServiceAccount, and its Service another address.
	f.options.Flags = []string{"--decision-records", "off", "--shutdown-delay", "10m"}
	f.kubelet.Options(f.options)
	if err := f.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.until("nothing runs", func() bool { return len(f.kubelet.Replicas()) == 0 && len(f.pods()) == 0 })
	if _, err := f.kubelet.Manager(replica); err == nil {
		t.Error("its pod is gone, and a manager runs")
	}
	if err := f.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.serves()

	// The end does not wait for who takes its time.
	replica = f.kubelet.Replicas()[0]
	if manager, err = f.kubelet.Manager(replica); err != nil {
		t.Fatal(err)
	}
	if err := f.clientset.CoreV1().Pods(Namespace).Delete(t.Context(), replica, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until("it is ending", func() bool { return !slices.Contains(f.kubelet.Replicas(), replica) })
	began := time.Now()
	if err := f.kubelet.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the end took %v", took)
	}
	select {
	case <-manager.Ended():
	default:
		t.Error("a manager still runs")
	}
}
