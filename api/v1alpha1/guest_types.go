package v1alpha1

import "strings"

// ToolsState says whether the tools run in a guest that report to its runtime, such
// as VMware Tools.
//
// +kubebuilder:validation:Enum=Running;Starting;NotRunning;NotInstalled
type ToolsState string

const (
	// ToolsRunning means that they run: the guest can be asked to shut down.
	ToolsRunning ToolsState = "Running"
	// ToolsStarting means that they are about to run.
	ToolsStarting ToolsState = "Starting"
	// ToolsNotRunning means that they do not run, as while a guest boots.
	ToolsNotRunning ToolsState = "NotRunning"
	// ToolsNotInstalled means that the guest has none.
	ToolsNotInstalled ToolsState = "NotInstalled"
)

// GuestStatus is what a guest says of itself.
type GuestStatus struct {
	// What the guest calls itself, which need not be the name of the
	// VirtualMachine. Absent if nothing in the guest reports it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`

	// Whether the tools run in the guest, such as VMware Tools: Running, Starting,
	// NotRunning or NotInstalled. A graceful Stop or Restart needs them running.
	// +optional
	ToolsState ToolsState `json:"toolsState,omitempty"`

	// The incarnation in which the tools were last seen running. If it is that of
	// the machine, and the tools do not run any more, the machine is Degraded; a
	// guest that is booting is not.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ToolsSeenIn string `json:"toolsSeenIn,omitempty"`
}

// PendingQuestion is what a runtime asks people.
type PendingQuestion struct {
	// The question.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	Text string `json:"text"`

	// The answers that it takes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Choices []string `json:"choices,omitempty"`
}

// String is the question with the answers that it takes.
func (q *PendingQuestion) String() string {
	if len(q.Choices) == 0 {
		return q.Text
	}
	return q.Text + " (answers: " + strings.Join(q.Choices, ", ") + ")"
}
