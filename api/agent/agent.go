// Package agent is the contract between Sallyport and the agents on nodes that run machines as pods, such as a virtual
// kubelet. Sallyport makes a Pod for each machine and says in its annotations what is asked of the machine: an [Order]. The agent
// that has the Pod's node does it and says in other annotations what the machine is like: a [Report].
//
// Each side writes its own annotations only, all of an Order, or of a Report, in one patch. An Order is one request, and has a number:
// its round. Rounds only grow. An agent does what the last Order asks, once, and confirms its round when that has been done, or could
// not be. Once it has confirmed a round it does nothing any more that an earlier one asked.
package agent

import (
	"fmt"
	"strconv"
)

const (
	// LabelMachine has the UID of the VirtualMachine. All Pods with it are machines.
	LabelMachine = "sallyport.dev/virtual-machine-uid"
	// Container is the name of the one container of a Pod. Its image is what the machine boots, and its requests are the size.
	Container = "machine"
	// DefaultImage is the image of a machine whose VirtualMachine names none: the agent boots what it is configured to.
	DefaultImage = "agent-default"
)

// MountPath returns where the container has the file system of a VirtualDisk, in which the agent keeps the disk.
func MountPath(disk string) string { return "/disks/" + disk }

// DevicePath returns where the container has a VirtualDisk that is a block device.
func DevicePath(disk string) string { return "/dev/disks/" + disk }

// What Sallyport writes. RestoreFrom is written when the Pod is created, and never again: the snapshot, by its digest, that the machine is
// made from. A machine that is made without it is new.
const (
	AnnotationRound       = "agent.sallyport.dev/round"
	AnnotationRequest     = "agent.sallyport.dev/request"
	AnnotationSnapshot    = "agent.sallyport.dev/snapshot"
	AnnotationRestoreFrom = "agent.sallyport.dev/restore-from"
)

// What the agent writes.
const (
	AnnotationState         = "agent.sallyport.dev/state"
	AnnotationObservedRound = "agent.sallyport.dev/observed-round"
	AnnotationInstanceID    = "agent.sallyport.dev/instance-id"
	AnnotationTools         = "agent.sallyport.dev/tools"
	AnnotationSaved         = "agent.sallyport.dev/saved"
	AnnotationMessage       = "agent.sallyport.dev/message"
)

// MaxRound is the highest number of a round. A higher one cannot be read.
const MaxRound = 1 << 53

// Request is what is asked of a machine.
type Request string

const (
	// None asks for nothing: the machine is made, and stays off. It is the request of round 0.
	None Request = "None"
	// PowerOn has the machine go on, or go on where it was if it is paused. The round is confirmed when it is on.
	PowerOn Request = "PowerOn"
	// Shutdown has its guest be asked to shut down. The round is confirmed when it was asked, whatever it makes of that. The agent
	// forgets that it has asked once the machine was off.
	Shutdown Request = "Shutdown"
	// PowerOff has its power be taken away. The round is confirmed when it is off.
	PowerOff Request = "PowerOff"
	// Withdraw takes back the request before, if that is not done yet. The round is confirmed when it was done or never will be.
	Withdraw Request = "Withdraw"
	// Hibernate has the machine be stopped where it is, and be pushed to the registry with its memory and disks, as the Snapshot of the
	// Order. The round is confirmed when it is Hibernated, or when it could not be and goes on as before. What the node has of it stays
	// there until it is woken or its Pod is deleted.
	Hibernate Request = "Hibernate"
	// Wake has a hibernated machine be as it was, from what its node has of it: on, under a new instance ID, paused or off. The round is
	// confirmed when it is, or could not be.
	Wake Request = "Wake"
)

// State is what a machine is like.
type State string

const (
	// Creating means that the machine is being made.
	Creating State = "Creating"
	// Stopped means that it is off.
	Stopped State = "Stopped"
	// Running means that it is on.
	Running State = "Running"
	// Paused means that it is suspended with its memory kept.
	Paused State = "Paused"
	// Hibernated means that nothing of it runs, and that the registry has all of it.
	Hibernated State = "Hibernated"
	// Failed means that it could not be made, that nothing of it ever ran, and that it is not tried again for this Pod.
	Failed State = "Failed"
)

// Tools says whether something in the guest can be asked to shut down.
type Tools string

const (
	// ToolsRunning means that it can.
	ToolsRunning Tools = "Running"
	// ToolsNotRunning means that it cannot.
	ToolsNotRunning Tools = "NotRunning"
)

// Order is what Sallyport asks.
type Order struct {
	// Round is its number.
	Round int64
	// Request is what is asked.
	Request Request
	// Snapshot is where a machine that is asked to hibernate is pushed to, a repository with a tag.
	Snapshot string
}

// OrderOf reads the Order of a Pod. A Pod without one has that of round 0. An error names the annotation that cannot be read.
func OrderOf(annotations map[string]string) (Order, error) {
	round, err := roundOf(annotations, AnnotationRound)
	if err != nil {
		return Order{}, err
	}
	o := Order{Round: round, Request: Request(annotations[AnnotationRequest]), Snapshot: annotations[AnnotationSnapshot]}
	switch o.Request {
	case "":
		o.Request = None
	case None, PowerOn, Shutdown, PowerOff, Withdraw, Hibernate, Wake:
	default:
		return Order{}, fmt.Errorf("annotation %s is %q, which is no request", AnnotationRequest, o.Request)
	}
	return o, nil
}

// Annotations are those that say the Order. An empty one is to be removed.
func (o Order) Annotations() map[string]string {
	return map[string]string{
		AnnotationRound: strconv.FormatInt(o.Round, 10), AnnotationRequest: string(o.Request), AnnotationSnapshot: o.Snapshot,
	}
}

// Report is what an agent says of a machine.
type Report struct {
	// State is what the machine is like. It is empty as long as no agent has taken the Pod.
	State State
	// ObservedRound is the last round that the agent has confirmed.
	ObservedRound int64
	// InstanceID is a mark that is new with every power-on, and stays as long as the machine is on or paused. It is empty before the
	// first, and stays when the machine goes off.
	InstanceID string
	// Tools says whether the guest can be asked to shut down. Empty means that it can.
	Tools Tools
	// Saved is the snapshot that a machine was hibernated to last, as the Order named it, with the digest of what was pushed:
	// "repository:tag@sha256:...". It is empty for a machine that never was.
	Saved string
	// Message says why what the last round asked could not be done, or the machine could not be made. It is empty if there is
	// nothing to say.
	Message string
}

// ReportOf reads the Report of a Pod. An error names the annotation that cannot be read.
func ReportOf(annotations map[string]string) (Report, error) {
	round, err := roundOf(annotations, AnnotationObservedRound)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		State: State(annotations[AnnotationState]), ObservedRound: round, InstanceID: annotations[AnnotationInstanceID],
		Tools: Tools(annotations[AnnotationTools]), Saved: annotations[AnnotationSaved],
		Message: annotations[AnnotationMessage],
	}
	switch r.State {
	case "", Creating, Stopped, Running, Paused, Hibernated, Failed:
		return r, nil
	}
	return Report{}, fmt.Errorf("annotation %s is %q, which is no state", AnnotationState, r.State)
}

// Annotations are those that say the Report. An empty one is to be removed, so that nothing of an earlier Report stays.
func (r Report) Annotations() map[string]string {
	return map[string]string{
		AnnotationState: string(r.State), AnnotationObservedRound: strconv.FormatInt(r.ObservedRound, 10),
		AnnotationInstanceID: r.InstanceID, AnnotationTools: string(r.Tools), AnnotationSaved: r.Saved,
		AnnotationMessage: r.Message,
	}
}

func roundOf(annotations map[string]string, key string) (int64, error) {
	text, is := annotations[key]
	if !is {
		return 0, nil
	}
	round, err := strconv.ParseInt(text, 10, 64)
	if err != nil || round < 0 || round > MaxRound {
		return 0, fmt.Errorf("annotation %s is %q, which is no number of a round", key, text)
	}
	return round, nil
}
