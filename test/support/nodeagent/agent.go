// Package nodeagent is an agent on nodes that honours the contract of [sallyport.dev/sallyport/api/agent], over machines that are
// nothing but what it remembers of them. It can be told to hold, to fail or to lie about what it is asked, and what its guests are like. It
// is scheduler and kubelet, too, for control planes that have none: it has Pods of machines be taken by its nodes, and removes those that
// are deleted.
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/agent"
)

// Agent is the agent of some nodes.
type Agent struct {
	// Transport is how it gets at the registry of snapshots. Nil is that of go-containerregistry.
	Transport http.RoundTripper
	// Pods lists the Pods. Nil is the client.
	Pods client.Reader
	// Scheduled tells that the cluster has a scheduler, so that the agent takes only what its nodes are given.
	Scheduled bool

	client client.Client
	nodes  []string

	mu sync.Mutex
	// machines are what there is on all nodes, by the UIDs of their Pods.
	machines map[types.UID]*machine
	// wishes are what it was told of machines, by the UIDs of their VirtualMachines.
	wishes map[types.UID]*wishes
	// worked is the most work that was done on a machine, likewise.
	worked map[types.UID]int
	// dead are the nodes whose agent is, and told those whose Node says so, or else that it is not.
	dead, told map[string]bool
	violations []string
}

// New gives the agent of those nodes.
func New(c client.Client, nodes ...string) *Agent {
	return &Agent{
		client: c, nodes: nodes, machines: map[types.UID]*machine{}, wishes: map[types.UID]*wishes{}, worked: map[types.UID]int{},
		dead: map[string]bool{}, told: map[string]bool{},
	}
}

// turns is how long an agent that runs waits between two steps.
const turns = 50 * time.Millisecond

// Run steps until the context ends, and tells of errors, after which it goes on.
func (a *Agent) Run(ctx context.Context, failed func(error)) {
	for {
		if err := a.Step(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(turns):
		}
	}
}

// Step looks at all Pods of machines once, and does for each the next thing that is due. A Pod that changes meanwhile has its turn in
// the next step. There is one Step at a time.
func (a *Agent) Step(ctx context.Context) error {
	var pods corev1.PodList
	if err := cmp.Or[client.Reader](a.Pods, a.client).List(ctx, &pods, client.HasLabels{agent.LabelMachine}); err != nil {
		return fmt.Errorf("listing the Pods of machines: %w", err)
	}
	a.forget(pods.Items)
	errs := []error{a.beat(ctx)}
	for i := range pods.Items {
		if err := a.turn(ctx, &pods.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// forget removes machines whose Pods are gone.
func (a *Agent) forget(pods []corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, m := range a.machines {
		if !a.dead[m.node] && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == uid }) {
			delete(a.machines, uid)
		}
	}
}

func (a *Agent) turn(ctx context.Context, pod *corev1.Pod) error {
	leaves := !pod.DeletionTimestamp.IsZero()
	switch {
	case pod.Spec.NodeName == "" && leaves:
		return a.removePod(ctx, pod)
	case pod.Spec.NodeName == "" && a.Scheduled:
		return nil
	case pod.Spec.NodeName == "":
		return a.schedule(ctx, pod)
	case !slices.Contains(a.nodes, pod.Spec.NodeName) || a.isDead(pod.Spec.NodeName):
		return nil
	case leaves:
		return a.remove(ctx, pod)
	}
	order, err := agent.OrderOf(pod.Annotations)
	if err != nil {
		return fmt.Errorf("reading the order of Pod %s: %w", pod.Name, err)
	}
	report := a.obey(ctx, pod, order)
	if a.isDead(pod.Spec.NodeName) { // it died with that done and not reported
		return nil
	}
	if err := a.report(ctx, pod, report); err != nil || report.State == agent.Creating {
		return err
	}
	return a.runs(ctx, pod)
}

// remove removes the machine, and the Pod after it.
func (a *Agent) remove(ctx context.Context, pod *corev1.Pod) error {
	a.mu.Lock()
	held := a.wish(vmOf(pod)).held[Deleting]
	if !held {
		delete(a.machines, pod.UID)
	}
	a.mu.Unlock()
	if held {
		return nil
	}
	return a.removePod(ctx, pod)
}

func (a *Agent) removePod(ctx context.Context, pod *corev1.Pod) error {
	if err := a.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); err != nil {
		return fmt.Errorf("removing Pod %s: %w", pod.Name, err)
	}
	return nil
}

// runs says in the status of the Pod what a kubelet would: that it runs, which it does whether the machine is on or off.
func (a *Agent) runs(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	changed := pod.DeepCopy()
	changed.Status.Phase = corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		changed.Status.ContainerStatuses = append(changed.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true})
	}
	if err := a.client.Status().Patch(ctx, changed, client.MergeFrom(pod)); err != nil {
		return fmt.Errorf("saying that Pod %s runs: %w", pod.Name, err)
	}
	return nil
}

// report writes what is to be reported of a Pod, if that is anything new.
func (a *Agent) report(ctx context.Context, pod *corev1.Pod, r agent.Report) error {
	changed := pod.DeepCopy()
	news := false
	for key, value := range r.Annotations() {
		news = news || pod.Annotations[key] != value
		if value == "" {
			delete(changed.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value)
	}
	if !news {
		return nil
	}
	if err := a.client.Patch(ctx, changed, client.MergeFrom(pod)); err != nil {
		return fmt.Errorf("reporting of Pod %s: %w", pod.Name, err)
	}
	return nil
}

// vmOf is the UID of the VirtualMachine that a Pod is the machine of.
func vmOf(pod *corev1.Pod) types.UID { return types.UID(pod.Labels[agent.LabelMachine]) }
