package v1alpha1

import "strings"

// ToolsState says whether the guest tools that report to the runtime run, such as
// VMware Tools.
//
// +kubebuilder:validation:Enum=Running;Starting;NotRunning;NotInstalled
type ToolsState string

const (
	// ToolsRunning means that they run: a graceful shutdown is possible.
	ToolsRunning ToolsState = "Running"
	// ToolsStarting means that they are about to run.
	ToolsStarting ToolsState = "Starting"
	// ToolsNotRunning means that they do not run, for example while the guest boots.
	ToolsNotRunning ToolsState = "NotRunning"
	// ToolsNotInstalled means that the guest has none.
	ToolsNotInstalled ToolsState = "NotInstalled"
)

// GuestStatus is what a guest reports about itself.
type GuestStatus struct {
	// The host name of the guest, which can differ from the name of the
	// VirtualMachine. Absent if the guest does not report it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`

	// Whether the tools run in the guest, such as VMware Tools: Running, Starting,
	// NotRunning or NotInstalled. A graceful Stop or Restart needs them running.
	// +optional
	ToolsState ToolsState `json:"toolsState,omitempty"`

	// The incarnation in which the tools were last seen running. If it is the
	// incarnation of the machine and the tools no longer run, the machine is
	// Degraded; a booting guest is not.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ToolsSeenIn string `json:"toolsSeenIn,omitempty"`
}

// PendingQuestion is a question of a runtime that a user must answer.
type PendingQuestion struct {
	// The question.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	Text string `json:"text"`

	// The possible answers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Choices []string `json:"choices,omitempty"`
}

// String is the question with its possible answers.
func (q *PendingQuestion) String() string {
	if len(q.Choices) == 0 {
		return q.Text
	}
	return q.Text + " (answers: " + strings.Join(q.Choices, ", ") + ")"
}
