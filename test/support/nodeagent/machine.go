package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/agent"
)

// content is all that a machine is, and what is in its snapshot. Its Work is on its disks: it stays when the machine goes off.
type content struct {
	VM       types.UID
	Work     int
	State    agent.State
	Instance string
	// Disks are the claims of the Pod's volumes. Their data is on them and not in the snapshot.
	Disks []string
	// Ref is what makes one snapshot of the same content differ from another.
	Ref string
}

// machine is what an agent remembers of a machine: on a real node, this is the machine.
type machine struct {
	vm, pod types.UID
	node    string
	disks   []string // the claims of the Pod's volumes
	state   agent.State
	slept   agent.State // what it was before it was hibernated
	work    int
	ons     int    // how often it was powered on, on this node
	asked   bool   // the guest was asked to shut down and has not heeded it
	frozen  string // the snapshot that it was pushed as, while that is not reported and can still be taken back
	saved   string // the snapshot that it was hibernated to last
	failed  string // why the last round could not be done, or it could not be made
	done    int64  // the last round that was done
}

// runs tells whether something of the machine runs, or is ready to go on.
func (m *machine) runs() bool { return m.frozen == "" && isOn(m.state) }

func isOn(state agent.State) bool { return state == agent.Running || state == agent.Paused }

// claimsOf are the PersistentVolumeClaims that a Pod uses.
func claimsOf(pod *corev1.Pod) (names []string) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

func (m *machine) instance() string {
	if m.ons == 0 {
		return ""
	}
	return fmt.Sprintf("%s/%d", m.pod, m.ons)
}

// obey does the next thing for a machine, and gives what there is to report.
func (a *Agent) obey(ctx context.Context, pod *corev1.Pod, order agent.Order) agent.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.machines[pod.UID]
	if m == nil {
		m = &machine{vm: vmOf(pod), pod: pod.UID, node: pod.Spec.NodeName, disks: claimsOf(pod), state: agent.Creating}
		a.machines[pod.UID] = m
	}
	wish := a.wish(m.vm)
	switch {
	case m.state == agent.Failed:
	case m.state == agent.Creating && !wish.held[Creating]:
		a.create(ctx, m, pod.Annotations[agent.AnnotationRestoreFrom])
	case m.state == agent.Creating:
	case order.Round > m.done && !wish.held[order.Request]:
		a.carryOut(ctx, m, order)
	case m.asked && !wish.guest.Ignores:
		a.becomes(m, agent.Stopped)
	}
	return m.report(wish)
}

// create makes the machine, from a snapshot if it is to come from one.
func (a *Agent) create(ctx context.Context, m *machine, from string) {
	if why, fails := a.wish(m.vm).fails[Creating]; fails {
		m.state, m.failed = agent.Failed, why
		return
	}
	is := content{VM: m.vm, State: agent.Stopped}
	if from != "" {
		var err error
		a.unlocked(func() { is, err = a.pull(ctx, from) })
		switch {
		case isGone(err):
			m.state, m.failed = agent.Failed, "the registry does not have "+from
			return
		case err != nil: // it is tried again
			m.failed = "pulling " + from + ": " + err.Error()
			return
		case is.VM != m.vm:
			m.state, m.failed = agent.Failed, from+" is of another machine"
			return
		}
		if !slices.Equal(is.Disks, m.disks) {
			a.violated("the machine on %s had the disks %v and comes back with %v", m.node, is.Disks, m.disks)
		}
	}
	m.work, m.failed = is.Work, ""
	if m.work < a.worked[m.vm] {
		a.violated("the machine on %s goes back from %d to %d", m.node, a.worked[m.vm], m.work)
	}
	a.becomes(m, is.State)
}

// carryOut does what is asked. What was held until something else is asked is never done.
func (a *Agent) carryOut(ctx context.Context, m *machine, order agent.Order) {
	why, fails := a.wish(m.vm).fails[order.Request]
	m.failed = why
	switch {
	case fails:
	case order.Request == agent.Hibernate:
		if !a.hibernate(ctx, m, order.Snapshot) {
			return
		}
	default:
		a.do(m, order.Request)
	}
	if m.frozen != "" {
		m.frozen = ""
		a.becomes(m, m.state)
	}
	m.done = order.Round
}

func (a *Agent) do(m *machine, request agent.Request) {
	switch {
	case request == agent.PowerOn && m.state == agent.Hibernated:
		m.failed = "the machine is hibernated"
	case request == agent.PowerOn:
		a.becomes(m, agent.Running)
	case request == agent.PowerOff:
		a.becomes(m, agent.Stopped)
	case request == agent.Shutdown:
		m.asked = m.state == agent.Running && !a.wish(m.vm).guest.NoTools
	case request == agent.Wake && m.state == agent.Hibernated:
		a.becomes(m, m.slept)
	}
}

// hibernate stops the machine where it is, pushes it, and tells whether that is done, or could not be. Until it is, it can be taken back.
func (a *Agent) hibernate(ctx context.Context, m *machine, ref string) (done bool) {
	wish := a.wish(m.vm)
	if m.state == agent.Hibernated && strings.HasPrefix(m.saved, ref+"@") {
		return true
	}
	if !strings.HasPrefix(m.frozen, ref+"@") {
		m.frozen = ref // nothing of it runs from here on
		is := content{VM: m.vm, Work: m.work, State: m.state, Instance: m.instance(), Disks: m.disks, Ref: ref}
		if m.state == agent.Hibernated {
			is.State = m.slept
		}
		var digest string
		var err error
		a.unlocked(func() { digest, err = a.push(ctx, is) })
		if err != nil {
			m.failed = "pushing " + ref + ": " + err.Error()
			return true
		}
		m.frozen = ref + "@" + digest
	}
	if wish.held[Reporting] {
		return false
	}
	if m.state != agent.Hibernated {
		m.slept = m.state
	}
	m.saved, m.frozen = m.frozen, ""
	a.becomes(m, agent.Hibernated)
	return true
}

// becomes has the machine be in that state. One that comes to be on has a new instance ID.
func (a *Agent) becomes(m *machine, state agent.State) {
	if state == agent.Running && !isOn(m.state) || state == agent.Paused && m.ons == 0 {
		m.ons++
	}
	m.state, m.asked = state, m.asked && isOn(state)
	for _, other := range a.machines {
		if other != m && other.vm == m.vm && other.runs() && m.runs() {
			a.violated("the machine runs on %s and on %s", m.node, other.node)
		}
		for _, disk := range m.disks {
			if other != m && slices.Contains(other.disks, disk) && other.runs() && m.runs() {
				a.violated("two machines, on %s and on %s, write to %s", m.node, other.node, disk)
			}
		}
	}
}

func (m *machine) report(wish *wishes) agent.Report {
	r := agent.Report{
		State: m.state, ObservedRound: m.done, InstanceID: m.instance(), Tools: agent.ToolsRunning, Saved: m.saved, Message: m.failed,
	}
	if wish.guest.NoTools {
		r.Tools = agent.ToolsNotRunning
	}
	return r
}

// unlocked lets others in while something takes long. Only Steps change what machines there are, so that ours stays.
func (a *Agent) unlocked(do func()) {
	a.mu.Unlock()
	defer a.mu.Lock()
	do()
}
