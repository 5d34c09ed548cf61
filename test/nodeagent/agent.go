// Package nodeagent is an agent on nodes that honours the contract of [sallyport.dev/sallyport/api/agent], over machines that are
// nothing but what it remembers of them. It can be told to hold what it is asked, and what its guests are like. It is scheduler and
// kubelet, too, for control planes that have none: it has Pods of machines be taken by its nodes, and removes those that are deleted.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
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

// Creating is what Hold calls the making of a machine, and Deleting its removal.
const (
	Creating agent.Request = "Create"
	Deleting agent.Request = "Delete"
)

// Guest is what a guest is like.
type Guest struct {
	// Ignores has it ignore requests to shut down.
	Ignores bool
	// NoTools leaves nothing in it that could be asked.
	NoTools bool
}

// machine is what an agent remembers of a machine: on a real node, this is the machine.
type machine struct {
	state  agent.State
	ons    int  // how often it was powered on
	asked  bool // the guest was asked to shut down and has not heeded it
	guest  Guest
	failed string // why the last round could not be done
	done   int64  // the last round that was done
}

// Agent is the agent of some nodes.
type Agent struct {
	client client.Client
	nodes  []string

	mu       sync.Mutex
	machines map[types.UID]*machine // by the UID of the VirtualMachine
	held     map[types.UID]map[agent.Request]bool
}

// New gives the agent of those nodes.
func New(c client.Client, nodes ...string) *Agent {
	return &Agent{client: c, nodes: nodes, machines: map[types.UID]*machine{}, held: map[types.UID]map[agent.Request]bool{}}
}

// Step looks at all Pods of machines once, and does for each the next thing that is due. A Pod that changes meanwhile has its turn in
// the next step.
func (a *Agent) Step(ctx context.Context) error {
	var pods corev1.PodList
	if err := a.client.List(ctx, &pods, client.HasLabels{agent.LabelMachine}); err != nil {
		return fmt.Errorf("listing the Pods of machines: %w", err)
	}
	var errs []error
	for i := range pods.Items {
		if err := a.turn(ctx, &pods.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) turn(ctx context.Context, pod *corev1.Pod) error {
	uid := types.UID(pod.Labels[agent.LabelMachine])
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return a.remove(ctx, pod, uid)
	case pod.Spec.NodeName == "":
		return a.bind(ctx, pod)
	case !slices.Contains(a.nodes, pod.Spec.NodeName):
		return nil
	}
	order, err := agent.OrderOf(pod.Annotations)
	if err != nil {
		return fmt.Errorf("reading the order of Pod %s: %w", pod.Name, err)
	}
	return a.report(ctx, pod, a.obey(uid, order))
}

// bind has one of the nodes take the Pod, that which its affinity requires if there is one.
func (a *Agent) bind(ctx context.Context, pod *corev1.Pod) error {
	at := slices.IndexFunc(a.nodes, func(name string) bool { return fits(pod, name) })
	if at < 0 {
		return nil
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: a.nodes[at]},
	}
	if err := a.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return fmt.Errorf("binding Pod %s: %w", pod.Name, err)
	}
	return nil
}

func fits(pod *corev1.Pod, node string) bool {
	if pod.Spec.Affinity == nil {
		return true
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return slices.Contains(t.MatchFields[0].Values, node) })
}

// remove removes the machine, and the Pod after it.
func (a *Agent) remove(ctx context.Context, pod *corev1.Pod, uid types.UID) error {
	if a.holds(uid, Deleting) {
		return nil
	}
	err := a.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err != nil {
		return fmt.Errorf("removing Pod %s: %w", pod.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.machines, uid)
	return nil
}

// obey does the next thing for a machine, and gives what there is to report.
func (a *Agent) obey(uid types.UID, order agent.Order) agent.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machine(uid)
	held := a.held[uid]
	switch {
	case m.state == agent.Creating && !held[Creating]:
		m.state = agent.Stopped
	case m.state == agent.Creating:
	case order.Round > m.done && !held[order.Request]:
		m.do(order.Request)
		m.done = order.Round
	case m.asked && !m.guest.Ignores:
		m.off()
	}
	return m.report(uid)
}

func (a *Agent) machine(uid types.UID) *machine {
	if a.machines[uid] == nil {
		a.machines[uid] = &machine{state: agent.Creating}
	}
	return a.machines[uid]
}

// do does what is asked. What was held until something else is asked is never done.
func (m *machine) do(request agent.Request) {
	m.failed = ""
	switch request {
	case agent.PowerOn:
		if m.state == agent.Stopped {
			m.ons++
		}
		m.state = agent.Running
	case agent.PowerOff:
		m.off()
	case agent.Shutdown:
		m.asked = m.state == agent.Running && !m.guest.NoTools
	}
}

func (m *machine) off() { m.state, m.asked = agent.Stopped, false }

func (m *machine) report(uid types.UID) agent.Report {
	r := agent.Report{State: m.state, ObservedRound: m.done, Tools: agent.ToolsRunning, Message: m.failed}
	if m.guest.NoTools {
		r.Tools = agent.ToolsNotRunning
	}
	if m.ons > 0 {
		r.InstanceID = fmt.Sprintf("%s/%d", uid, m.ons)
	}
	return r
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

// Hold keeps the agent from doing that for the machine of the VirtualMachine with that UID, until release is called.
func (a *Agent) Hold(uid types.UID, request agent.Request) (release func()) {
	set := func(held bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.held[uid] == nil {
			a.held[uid] = map[agent.Request]bool{}
		}
		a.held[uid][request] = held
	}
	set(true)
	return func() { set(false) }
}

func (a *Agent) holds(uid types.UID, request agent.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held[uid][request]
}

// SetGuest says what the machine's guest is like from now on. One that ignored a request heeds it if it does not ignore any more.
func (a *Agent) SetGuest(uid types.UID, g Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.machine(uid).guest = g
}

// Pause suspends the machine.
func (a *Agent) Pause(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.machine(uid).state = agent.Paused
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
