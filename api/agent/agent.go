// Package agent is the contract between Sallyport and the agents on nodes that run machines as Pods, such as a virtual kubelet.
// Sallyport creates a Pod for each machine and writes an [Order] into its annotations. The agent of the Pod's node carries out the
// Order and writes a [Report] into other annotations.
//
// Each side writes only its own annotations, and all annotations of an Order, or of a Report, in one patch. An Order is one request and
// has a number, its round. Rounds only increase. An agent carries out the last Order once, and confirms its round when the Order is
// done or cannot be done. After an agent has confirmed a round, it does nothing more for an earlier Order.
package agent

import (
	"fmt"
	"strconv"
)

const (
	// LabelMachine is the label with the UID of the VirtualMachine. All Pods with it are machines.
	LabelMachine = "sallyport.dev/virtual-machine-uid"
	// Container is the name of the one container of a Pod. Its image is what the machine boots, and its requests are the size. A CPU
	// request of less than one CPU is none that a VirtualMachine can have: the agent chooses.
	Container = "machine"
	// DefaultImage is the image of a machine whose VirtualMachine names none: the agent boots what it is configured to.
	DefaultImage = "agent-default"
)

// MountPath returns where the container has the file system of a VirtualDisk, in which the agent keeps the disk.
func MountPath(disk string) string { return "/disks/" + disk }

// DevicePath returns where the container has a VirtualDisk that is a block device.
func DevicePath(disk string) string { return "/dev/disks/" + disk }

// The annotations that Sallyport writes. RestoreFrom is set only when the Pod is created: the snapshot to restore the machine from, by its
// digest. A machine without it is new.
const (
	AnnotationRound       = "agent.sallyport.dev/round"
	AnnotationRequest     = "agent.sallyport.dev/request"
	AnnotationSnapshot    = "agent.sallyport.dev/snapshot"
	AnnotationRestoreFrom = "agent.sallyport.dev/restore-from"
)

// The annotations that the agent writes.
const (
	AnnotationState         = "agent.sallyport.dev/state"
	AnnotationObservedRound = "agent.sallyport.dev/observed-round"
	AnnotationInstanceID    = "agent.sallyport.dev/instance-id"
	AnnotationTools         = "agent.sallyport.dev/tools"
	AnnotationSaved         = "agent.sallyport.dev/saved"
	AnnotationMessage       = "agent.sallyport.dev/message"
)

// MaxRound is the highest round. A higher number is an error.
const MaxRound = 1 << 53

// Request is what an Order asks for.
type Request string

const (
	// None asks for nothing: the agent creates the machine and leaves it off. It is the request of round 0.
	None Request = "None"
	// PowerOn starts the machine, or resumes it if it is paused. Confirm the round when the machine is on.
	PowerOn Request = "PowerOn"
	// Shutdown requests that the guest shuts down. Confirm the round when the guest got the request, whatever it does then. When the
	// machine is off, the request is forgotten.
	Shutdown Request = "Shutdown"
	// PowerOff switches the machine off without the guest. Confirm the round when the machine is off.
	PowerOff Request = "PowerOff"
	// Withdraw cancels the previous request if it is not done yet. Confirm the round when that request is done or will never be done.
	Withdraw Request = "Withdraw"
	// Hibernate stops the machine and pushes its memory and root disk to the registry, as the Snapshot of the Order. The volumes of the
	// Pod are not a part of the snapshot. Confirm the round when the machine is Hibernated, or when hibernation failed and the machine
	// continues as before. The data on the node stays until the machine is woken or its Pod is deleted.
	Hibernate Request = "Hibernate"
	// Wake restores a hibernated machine from the data on its node: on with a new instance ID, paused or off, as it was. Confirm the round
	// when this is done or has failed.
	Wake Request = "Wake"
)

// State is the state of a machine.
type State string

const (
	// Creating means that the agent is creating or restoring the machine.
	Creating State = "Creating"
	// Stopped means that the machine is off.
	Stopped State = "Stopped"
	// Running means that the machine is on.
	Running State = "Running"
	// Paused means that the machine is suspended and its memory is kept.
	Paused State = "Paused"
	// Hibernated means that nothing of the machine runs, and that the registry has its snapshot.
	Hibernated State = "Hibernated"
	// Failed means that the machine could not be created and never ran, and that the agent does not try again for this Pod.
	Failed State = "Failed"
)

// Tools says whether an agent in the guest accepts shutdown requests.
type Tools string

const (
	// ToolsRunning means that it does.
	ToolsRunning Tools = "Running"
	// ToolsNotRunning means that it does not.
	ToolsNotRunning Tools = "NotRunning"
)

// Order is a request of Sallyport.
type Order struct {
	// Round is the number of the Order.
	Round int64
	// Request is what the Order asks for.
	Request Request
	// Snapshot is the repository and tag to push to, for Hibernate.
	Snapshot string
}

// OrderOf returns the Order in the annotations of a Pod. A Pod without one has the Order of round 0. An error names the annotation.
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
		return Order{}, fmt.Errorf("annotation %s is %q, which is not a request", AnnotationRequest, o.Request)
	}
	return o, nil
}

// Annotations returns the annotations of the Order. Annotations with an empty value must be removed.
func (o Order) Annotations() map[string]string {
	return map[string]string{
		AnnotationRound: strconv.FormatInt(o.Round, 10), AnnotationRequest: string(o.Request), AnnotationSnapshot: o.Snapshot,
	}
}

// Report is the observed state of a machine.
type Report struct {
	// State is the state of the machine. It is empty until an agent has taken the Pod.
	State State
	// ObservedRound is the last confirmed round.
	ObservedRound int64
	// InstanceID is new at each power-on, and stays the same while the machine is on or paused. It is empty before the first power-on, and
	// is kept when the machine goes off.
	InstanceID string
	// Tools says whether an agent in the guest accepts shutdown requests. Empty means that it does.
	Tools Tools
	// Saved is the snapshot that a machine was hibernated to last, as the Order named it, with the digest of what was pushed:
	// "repository:tag@sha256:...". It is empty for a machine that never was.
	Saved string
	// Message says why the last Order failed, or why the machine could not be created. It is empty otherwise.
	Message string
}

// ReportOf returns the Report in the annotations of a Pod. An error names the annotation.
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
	return Report{}, fmt.Errorf("annotation %s is %q, which is not a state", AnnotationState, r.State)
}

// Annotations returns the annotations of the Report. Annotations with an empty value must be removed, so that no earlier value stays.
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
		return 0, fmt.Errorf("annotation %s is %q, which is not a round", key, text)
	}
	return round, nil
}
