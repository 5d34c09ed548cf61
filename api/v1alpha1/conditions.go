package v1alpha1

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionType is the type of a condition in the status of a kind of this
// group. Types and reasons are API: they do not change their meaning.
type ConditionType string

// ConditionReason is the reason of a condition, one CamelCase word. A denial by a
// policy has the reason of the policy, also one CamelCase word.
type ConditionReason string

// Known reports whether the type is one of this package.
func (t ConditionType) Known() bool { return knownConditionTypes[t] }

// Known reports whether the reason is one of this package. A policy has its own.
func (r ConditionReason) Known() bool { return knownConditionReasons[r] }

// maxMessage is how many bytes of a message a condition keeps. The schema of
// conditions allows some more.
const maxMessage = 4096

// Condition is a condition of this type, ready to be set on an object of that
// generation. The message must stay the same as long as nothing changes. A message
// that is too long for a condition is truncated.
func (t ConditionType) Condition(status metav1.ConditionStatus, reason ConditionReason, generation int64, message string) metav1.Condition {
	return metav1.Condition{
		Type:               string(t),
		Status:             status,
		ObservedGeneration: generation,
		Reason:             string(reason),
		Message:            Cut(message, maxMessage),
	}
}

// Cut truncates a text to at most that many bytes, and keeps it valid UTF-8.
func Cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// In finds the condition of this type among those of an object, nil if there is
// none.
func (t ConditionType) In(conditions []metav1.Condition) *metav1.Condition {
	return meta.FindStatusCondition(conditions, string(t))
}

// SetCondition sets a condition among those of an object. Its time is that of the
// clock, in whole seconds, and stays as long as its status does.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(conditions, c)
}

// ConditionReady is on every kind from the first write of its status on. It is
// true when the object matches its spec: the machine has the wanted power state
// and node, the operation has completed, the policy is active.
const ConditionReady ConditionType = "Ready"

// ConditionPlacementSettled of a VirtualMachine is true when the machine is on the
// node that is wanted, or when no node is wanted. Set by the VirtualMachine
// reconciler.
const ConditionPlacementSettled ConditionType = "PlacementSettled"

// ConditionRestartRequired of a VirtualMachine is true while the machine is on and
// its spec has a CPU or memory size that only a restart can apply. Set by the
// VirtualMachine reconciler, on machines that Sallyport created.
const ConditionRestartRequired ConditionType = "RestartRequired"

// Reasons of a VirtualMachine's conditions.
const (
	// ReasonAsWanted (Ready true): the machine has the wanted power state and node.
	ReasonAsWanted ConditionReason = "AsWanted"
	// ReasonObserved (Ready true): the run policy is Observe, and the runtime has the machine. The status shows its state.
	ReasonObserved ConditionReason = "Observed"
	// ReasonSpecDiffers (RestartRequired true): the message has the values of the spec and of the machine.
	ReasonSpecDiffers ConditionReason = "SpecDiffers"
	// ReasonQuotaExceeded (RestartRequired false, or an operation's): the size in the
	// spec exceeds the quota on the VSphereServer, and the machine keeps its size.
	ReasonQuotaExceeded ConditionReason = "QuotaExceeded"
	// ReasonProvisioning (Ready false): the machine is being created or adopted.
	ReasonProvisioning ConditionReason = "Provisioning"
	// ReasonOperationInProgress (Ready false): an operation has claimed the machine or is still being undone. The message names it.
	ReasonOperationInProgress ConditionReason = "OperationInProgress"
	// ReasonPowerStateDiffers (Ready false): the power state differs from the wanted one, and the run policy does not change it.
	ReasonPowerStateDiffers ConditionReason = "PowerStateDiffers"
	// ReasonInstanceNotFound (Ready false): the runtime does not have the machine, and Sallyport has never seen it.
	ReasonInstanceNotFound ConditionReason = "InstanceNotFound"
	// ReasonInvalidSpec (Ready false): the runtime cannot apply the spec, for example
	// because a template does not exist. The message begins with the field. Sallyport
	// tries again.
	ReasonInvalidSpec ConditionReason = "InvalidSpec"
	// ReasonInstanceLost (Ready false): the runtime no longer has the machine. It
	// counts as off and is not created again.
	ReasonInstanceLost ConditionReason = "InstanceLost"
	// ReasonOwnedByAnother (Ready false): the machine or disk on the runtime belongs
	// to another object or another cluster, and is left alone. If that object has
	// the same namespace and name, as before a restore, nothing is made until
	// kubectl sallyport take-over or make-anew decides.
	ReasonOwnedByAnother ConditionReason = "OwnedByAnother"
	// ReasonRuntimeUnavailable (Ready unknown or false): the runtime does not
	// answer. The status shows the last known state.
	ReasonRuntimeUnavailable ConditionReason = "RuntimeUnavailable"
	// ReasonDisconnected (Ready unknown): the runtime lost the connection to the
	// machine, such as a vCenter to its host. The status shows the last known state.
	ReasonDisconnected ConditionReason = "Disconnected"
	// ReasonQuestionPending (Ready false): the machine is blocked until a user
	// answers a question of the runtime. The message has the question.
	ReasonQuestionPending ConditionReason = "QuestionPending"
	// ReasonInstanceUnusable (Ready false): a user has made something else of the
	// machine on the runtime, such as a template in vCenter. The message says how to
	// undo that.
	ReasonInstanceUnusable ConditionReason = "InstanceUnusable"
	// ReasonToolsNotRunning (Ready false): the tools in the guest have run since the
	// last power-on and have stopped.
	ReasonToolsNotRunning ConditionReason = "ToolsNotRunning"
	// ReasonPermissionDenied (Ready false): the runtime denies access. The message
	// names the missing right.
	ReasonPermissionDenied ConditionReason = "PermissionDenied"
	// ReasonRuntimeNotSupported (Ready false): no runtime of the kind in the spec is
	// available.
	ReasonRuntimeNotSupported ConditionReason = "RuntimeNotSupported"
	// ReasonTakingOver (Ready unknown): this replica has just taken over from
	// another one that may still be working, and sends nothing yet.
	ReasonTakingOver ConditionReason = "TakingOver"
	// ReasonStartPaused (Ready false): the machine stopped or failed soon after the
	// run policy started it. The next start is backing off.
	ReasonStartPaused ConditionReason = "StartPaused"
	// ReasonProvisioned (an event's only): the machine was created or adopted.
	ReasonProvisioned ConditionReason = "Provisioned"
	// ReasonReleased (an event's only): an adopted machine is no longer Sallyport's, because its run policy is Observe.
	ReasonReleased ConditionReason = "Released"
	// ReasonAbandoned (an event's only): the object was deleted without calling the
	// runtime, which may still have the machine.
	ReasonAbandoned ConditionReason = "Abandoned"
	// ReasonTerminating (Ready false): the object is being deleted.
	ReasonTerminating ConditionReason = "Terminating"

	// ReasonNodeNotChosen (PlacementSettled true): neither the spec nor an
	// operation names a node.
	ReasonNodeNotChosen ConditionReason = "NodeNotChosen"
	// ReasonOnNode (PlacementSettled true): the machine is on the node that is
	// wanted.
	ReasonOnNode ConditionReason = "OnNode"
	// ReasonMigrationNeeded (PlacementSettled false): the machine is not on the
	// wanted node. It is about to be moved, or the last move failed: the message
	// says why.
	ReasonMigrationNeeded ConditionReason = "MigrationNeeded"
	// ReasonMoveNotDecided (PlacementSettled false): the policies could not be
	// evaluated for the move; they are evaluated again. The message says what
	// failed. If a policy denies the move for now, the reason is that of the policy,
	// such as TooManyMigrations.
	ReasonMoveNotDecided ConditionReason = "MoveNotDecided"
	// ReasonMigrating (PlacementSettled false): the machine is being moved.
	ReasonMigrating ConditionReason = "Migrating"
	// ReasonSourceUnreachable (PlacementSettled false): the machine is being moved,
	// and a node that takes part in the move is gone or not ready. The message says
	// how to confirm that the node is dead.
	ReasonSourceUnreachable ConditionReason = "SourceUnreachable"
	// ReasonRegistryUnavailable (PlacementSettled false): the machine is being
	// moved, and the registry does not show its snapshot.
	ReasonRegistryUnavailable ConditionReason = "RegistryUnavailable"
	// ReasonUnscheduled (PlacementSettled false): the machine is being moved, and its
	// Pod is not scheduled yet.
	ReasonUnscheduled ConditionReason = "Unscheduled"
	// ReasonInstanceInTheWay (PlacementSettled false): the machine is being moved,
	// and a Pod with its name is not an instance of the move.
	ReasonInstanceInTheWay ConditionReason = "InstanceInTheWay"
	// ReasonRolledBack (PlacementSettled false): the move to the wanted node failed,
	// and the machine was restored on another node. It is not moved again until
	// spec.nodeName changes or an operation moves it.
	ReasonRolledBack ConditionReason = "RolledBack"
	// ReasonNodeUnknown (PlacementSettled unknown): the node of the machine is not
	// known.
	ReasonNodeUnknown ConditionReason = "NodeUnknown"

	// ReasonDisksAttached (DisksAttached true): all disks of the spec are attached.
	ReasonDisksAttached ConditionReason = "DisksAttached"
	// ReasonDiskNotFound (DisksAttached false): the spec names a VirtualDisk that does
	// not exist.
	ReasonDiskNotFound ConditionReason = "DiskNotFound"
	// ReasonDiskNotReady (DisksAttached false): a disk is not created yet, is lost, or is
	// being deleted.
	ReasonDiskNotReady ConditionReason = "DiskNotReady"
	// ReasonDiskInUse (DisksAttached false): another machine or a Pod, which the message
	// names, uses the disk or its claim. Ready and Completed have it, too, for a start.
	ReasonDiskInUse ConditionReason = "DiskInUse"
	// ReasonDiskElsewhere (DisksAttached false): a disk is on another runtime or
	// server than the machine.
	ReasonDiskElsewhere ConditionReason = "DiskElsewhere"
	// ReasonAttaching (DisksAttached false): disks are being attached or detached, or
	// are about to be.
	ReasonAttaching ConditionReason = "Attaching"
)

const (
	// ConditionSignalSent of a VirtualMachineOperation is true once the runtime has
	// confirmed the request, and unknown from just before the request is sent. Set
	// by the operation reconciler.
	ConditionSignalSent ConditionType = "SignalSent"
	// ConditionCompleted of a VirtualMachineOperation is true when it succeeded or
	// was superseded, and false before that and after a failure. Its reason says
	// which. Set by the operation reconciler.
	ConditionCompleted ConditionType = "Completed"
	// ConditionSuperseded of a VirtualMachineOperation is true once another
	// operation has superseded it. Set by the operation reconciler, for kubectl
	// wait.
	ConditionSuperseded ConditionType = "Superseded"
)

// Reasons of a VirtualMachineOperation's conditions. If a policy denies an
// operation after its creation, Completed has the reason of the policy.
const (
	// ReasonSending (SignalSent unknown): the request is about to be sent, or was
	// sent and not answered.
	ReasonSending ConditionReason = "Sending"
	// ReasonSent (SignalSent true): the runtime has confirmed the request.
	ReasonSent ConditionReason = "Sent"
	// ReasonNothingToSend (SignalSent false): the machine already was in the
	// requested state.
	ReasonNothingToSend ConditionReason = "NothingToSend"

	// ReasonWaiting (Completed false): another operation has claimed the machine or
	// is still being undone. The message names it.
	ReasonWaiting ConditionReason = "Waiting"
	// ReasonInProgress (Completed false): the operation has claimed the machine.
	ReasonInProgress ConditionReason = "InProgress"
	// ReasonNotDecided (Completed false): a policy could not be evaluated for the
	// operation; this is retried until the deadline. The message says what failed.
	ReasonNotDecided ConditionReason = "NotDecided"
	// ReasonSucceeded (Completed true): the machine was observed in the wanted
	// state.
	ReasonSucceeded ConditionReason = "Succeeded"
	// ReasonSuperseded (Completed true, Superseded true): another operation has
	// superseded it.
	ReasonSuperseded ConditionReason = "Superseded"
	// ReasonNotSuperseded (Superseded false): no operation has superseded it.
	ReasonNotSuperseded ConditionReason = "NotSuperseded"
	// ReasonDeadlineExceeded (Completed false): the operation did not finish within
	// activeDeadlineSeconds.
	ReasonDeadlineExceeded ConditionReason = "DeadlineExceeded"
	// ReasonDeleted (Completed false): it was deleted before it finished.
	ReasonDeleted ConditionReason = "Deleted"
	// ReasonAttemptFailed (Completed false): an attempt failed or could not be sent,
	// and is retried until the deadline. The message is that of the runtime.
	ReasonAttemptFailed ConditionReason = "AttemptFailed"
	// ReasonRuntimeFailed (Completed false): the runtime cannot carry out the
	// operation. The message is that of the runtime.
	ReasonRuntimeFailed ConditionReason = "RuntimeFailed"
	// ReasonVirtualMachineDeleted (Completed false): the VirtualMachine is being
	// deleted or no longer exists.
	ReasonVirtualMachineDeleted ConditionReason = "VirtualMachineDeleted"
	// ReasonVirtualMachineReplaced (Completed false): the VirtualMachine has another
	// UID than when the operation was created.
	ReasonVirtualMachineReplaced ConditionReason = "VirtualMachineReplaced"
)

const (
	// ConditionAvailable of a VirtualMachinePool is true when at least as many
	// members run as spec.replicas says. Set by the pool reconciler.
	ConditionAvailable ConditionType = "Available"
	// ConditionProgressing of a VirtualMachinePool is true while members are created
	// or removed. Set by the pool reconciler.
	ConditionProgressing ConditionType = "Progressing"
	// ConditionSynced of a VirtualMachinePool is true when all members have the
	// current template, and none needs a restart for it. Set by the pool reconciler.
	ConditionSynced ConditionType = "Synced"
	// ConditionScaleDownBlocked of a VirtualMachinePool is true when members should be
	// removed but cannot be. The message names them and says why. Set by the pool
	// reconciler.
	ConditionScaleDownBlocked ConditionType = "ScaleDownBlocked"
)

// Reasons of a VirtualMachinePool's conditions. Ready has the reason of the
// first condition that is not as it should be.
const (
	// ReasonAllReplicasReady (Available true): enough members run.
	ReasonAllReplicasReady ConditionReason = "AllReplicasReady"
	// ReasonInsufficientReadyReplicas (Available false): fewer members run than spec.replicas says.
	ReasonInsufficientReadyReplicas ConditionReason = "InsufficientReadyReplicas"
	// ReasonMembersStopped (Available false): fewer members run than spec.replicas
	// says, but the others are off as they should be. The pool is Ready nevertheless.
	ReasonMembersStopped ConditionReason = "MembersStopped"
	// ReasonReplicasProgressing (Progressing true): the number of members differs from spec.replicas.
	ReasonReplicasProgressing ConditionReason = "ReplicasProgressing"
	// ReasonSteady (Progressing false): the number of members is spec.replicas.
	ReasonSteady ConditionReason = "Steady"
	// ReasonFailedCreate (Progressing false): members cannot be created; this is
	// retried. The message says why.
	ReasonFailedCreate ConditionReason = "FailedCreate"
	// ReasonPoolSynced (Synced true): all members have the current template.
	ReasonPoolSynced ConditionReason = "PoolSynced"
	// ReasonRolloutInProgress (Synced false): members have an earlier template, or
	// another release of the VSphereTemplate that the pool follows.
	ReasonRolloutInProgress ConditionReason = "RolloutInProgress"
	// ReasonRolloutFailed (Synced false): a member could not be updated to the
	// current template; this is retried. The message says why.
	ReasonRolloutFailed ConditionReason = "RolloutFailed"
	// ReasonRestartPendingApproval (Synced false): members have the current template
	// and wait for a user to restart them, or to delete those of another release.
	ReasonRestartPendingApproval ConditionReason = "RestartPendingApproval"
	// ReasonMembersBusy (ScaleDownBlocked true, Progressing false): the members that could be removed are
	// busy. With Synced false: the members to replace are busy.
	ReasonMembersBusy ConditionReason = "MembersBusy"
	// ReasonDeletionRefused (ScaleDownBlocked true, Progressing false): a policy denies the deletion of the
	// members to remove. With Synced false: of the members to replace.
	ReasonDeletionRefused ConditionReason = "DeletionRefused"
	// ReasonNobodyNamed (ScaleDownBlocked true, Progressing false): there are more members than
	// spec.replicas says, and scaleDownPolicy Explicit removes only those that are named.
	ReasonNobodyNamed ConditionReason = "NobodyNamed"
	// ReasonNotBlocked (ScaleDownBlocked false): no member that should be removed is kept.
	ReasonNotBlocked ConditionReason = "NotBlocked"
)

// ConditionDisksAttached of a VirtualMachine is true when exactly the VirtualDisks
// that its spec names are attached. Absent while it has none. Set by the
// VirtualMachine reconciler.
const ConditionDisksAttached ConditionType = "DisksAttached"

// Reasons of a VirtualDisk's conditions. A disk that is deleted while it is attached has DiskInUse.
const (
	// ReasonDiskReady (Ready true): the disk exists and has the size of the spec.
	ReasonDiskReady ConditionReason = "DiskReady"
	// ReasonDiskLost (Ready false): the runtime no longer has the disk. It is not
	// created again.
	ReasonDiskLost ConditionReason = "DiskLost"
	// ReasonResizing (Ready false): the disk is smaller than the spec says.
	ReasonResizing ConditionReason = "Resizing"
)

const (
	// ConditionCompiled of a RegoPolicy is true when its current generation compiles
	// and follows the contract between policies and Sallyport. Set by the policy
	// reconciler.
	ConditionCompiled ConditionType = "Compiled"
	// ConditionTestsPassed of a RegoPolicy is true when all tests of its current
	// generation passed, with the present libraries. Set by the policy reconciler.
	ConditionTestsPassed ConditionType = "TestsPassed"
	// ConditionReadsGranted of a RegoPolicy is true when every kind in spec.reads is
	// served and Sallyport may read it. Set by the policy reconciler.
	ConditionReadsGranted ConditionType = "ReadsGranted"
	// ConditionActive of a RegoPolicy is true when its current or its last good
	// revision is active; the reason says which. Set by the policy reconciler.
	ConditionActive ConditionType = "Active"
	// ConditionShipped of a RegoPolicy is true when the shipped policy of this
	// release has been applied, except for edited fields. Absent on policies that
	// are not shipped. Set by the policy reconciler of the installed release.
	ConditionShipped ConditionType = "Shipped"
	// ConditionRegistered of a RegoPolicy is true when a webhook is registered for
	// every kind that it matches. Absent on policies that match only Sallyport's own
	// kinds, for which the chart registers the webhooks. Set by the policy reconciler.
	ConditionRegistered ConditionType = "Registered"
	// ConditionAudited of a RegoPolicy is true when every object that it matches was
	// evaluated; otherwise the message says which were not. Absent unless
	// spec.backgroundAudit is Enabled. Set by the policy reconciler.
	ConditionAudited ConditionType = "Audited"
	// ConditionReported of a RegoPolicy is true when the results of the last audit
	// are in reports of openreports.io. Absent unless spec.backgroundAudit is Enabled
	// and reports are enabled (chart value audits.reports). Set by the policy
	// reconciler.
	ConditionReported ConditionType = "Reported"
	// ConditionEdited of a RegoPolicy is true when users have changed, added or
	// removed fields, compared with the shipped policy; the message lists them.
	// Absent on policies that are not shipped. Set by the policy reconciler.
	ConditionEdited ConditionType = "Edited"
)

// Reasons of a RegoPolicy's conditions.
const (
	// ReasonCompiled (Compiled true): the policy compiles.
	ReasonCompiled ConditionReason = "Compiled"
	// ReasonCompileFailed (Compiled false): the policy does not compile. The message
	// names file, line and column.
	ReasonCompileFailed ConditionReason = "CompileFailed"
	// ReasonContractBroken (Compiled false): the policy compiles but breaks the
	// contract between policies and Sallyport. The message says where.
	ReasonContractBroken ConditionReason = "ContractBroken"
	// ReasonParametersInvalid (Compiled false): spec.parametersSchema or the rule
	// valid_parameters rejects the parameters, or the schema is invalid. The message
	// names the field.
	ReasonParametersInvalid ConditionReason = "ParametersInvalid"
	// ReasonLibraryMissing (Compiled false, Active false): the policy imports a
	// library that does not exist.
	ReasonLibraryMissing ConditionReason = "LibraryMissing"

	// ReasonLibraryConflict (Compiled false): the library has names that another
	// library already has. The message names it.
	ReasonLibraryConflict ConditionReason = "LibraryConflict"

	// ReasonTestsPassed (TestsPassed true): every test passed.
	ReasonTestsPassed ConditionReason = "TestsPassed"
	// ReasonTestsFailed (TestsPassed false): the message names the tests that failed
	// or could not be run.
	ReasonTestsFailed ConditionReason = "TestsFailed"
	// ReasonTestsMissing (TestsPassed false): the policy has no tests.
	ReasonTestsMissing ConditionReason = "TestsMissing"
	// ReasonTestsNotRun (TestsPassed unknown): the tests could not be run, for
	// example because the policy does not compile. The message says why.
	ReasonTestsNotRun ConditionReason = "TestsNotRun"

	// ReasonReadsGranted (ReadsGranted true): every kind in spec.reads can be read.
	ReasonReadsGranted ConditionReason = "ReadsGranted"
	// ReasonReadsForbidden (ReadsGranted false): Sallyport may not read a kind in
	// spec.reads. The message names the kind.
	ReasonReadsForbidden ConditionReason = "ReadsForbidden"
	// ReasonKindNotServed (ReadsGranted false): a kind in spec.reads does not exist
	// in this cluster. The message names the kind.
	ReasonKindNotServed ConditionReason = "KindNotServed"
	// ReasonReadsNotSynced (ReadsGranted unknown): the kinds in spec.reads are being
	// read for the first time.
	ReasonReadsNotSynced ConditionReason = "ReadsNotSynced"
	// ReasonReadsFailed (ReadsGranted false): a kind in spec.reads cannot be read.
	// The message says why.
	ReasonReadsFailed ConditionReason = "ReadsFailed"

	// ReasonCurrentRevision (Active true): the current generation is active.
	ReasonCurrentRevision ConditionReason = "CurrentRevision"
	// ReasonLastGoodRevision (Active true): the current generation is broken, and
	// the last good one is active.
	ReasonLastGoodRevision ConditionReason = "LastGoodRevision"
	// ReasonNoGoodRevision (Active false, Registered false): no revision is active.
	// Requests that the policy matches follow spec.onError; requests for kinds that it
	// was never registered for pass.
	ReasonNoGoodRevision ConditionReason = "NoGoodRevision"
	// ReasonNobodyDecides (Active false): no replica of Sallyport is running, as
	// after an uninstall. Set by the last replica that ends, and by kubectl
	// sallyport release.
	ReasonNobodyDecides ConditionReason = "NobodyDecides"

	// ReasonRegistered (Registered true): the policy is registered with the API
	// server.
	ReasonRegistered ConditionReason = "Registered"
	// ReasonWaitingForReplicas (Registered false, Ready false or unknown): a live
	// replica does not serve this revision yet. The message says which.
	ReasonWaitingForReplicas ConditionReason = "WaitingForReplicas"
	// ReasonNotRegistrable (Registered false, Ready false): webhooks cannot be
	// registered for a part of spec.match. The message names it.
	ReasonNotRegistrable ConditionReason = "NotRegistrable"
	// ReasonResourceNotServed (Registered false, Ready false): spec.match names a
	// resource, version, subresource or operation that the cluster does not serve.
	// The policy is registered for the rest, and for this once the cluster serves it.
	// The message names it.
	ReasonResourceNotServed ConditionReason = "ResourceNotServed"
	// ReasonRegistrationFailed (Registered false, Ready false): the webhook configuration could
	// not be written. The message says why.
	ReasonRegistrationFailed ConditionReason = "RegistrationFailed"

	// ReasonAudited (Audited true): every object was evaluated.
	ReasonAudited ConditionReason = "Audited"
	// ReasonAuditIncomplete (Audited false, Reported false): not every object was
	// evaluated. The message says why, such as a kind that Sallyport may not list.
	ReasonAuditIncomplete ConditionReason = "AuditIncomplete"
	// ReasonReported (Reported true): the reports have the results of the last
	// audit. The message counts the reports and the results left out.
	ReasonReported ConditionReason = "Reported"
	// ReasonReportsNotServed (Reported false): the cluster does not serve the report
	// kinds.
	ReasonReportsNotServed ConditionReason = "ReportsNotServed"
	// ReasonReportNameTaken (Reported false): objects of another owner have the
	// names of reports and are left alone. The message names them.
	ReasonReportNameTaken ConditionReason = "ReportNameTaken"
	// ReasonReportsFailed (Reported false): reports could not be written. The
	// message says why.
	ReasonReportsFailed ConditionReason = "ReportsFailed"

	// ReasonShipped (Shipped true): the shipped policy of the release has been
	// applied. The message names the release.
	ReasonShipped ConditionReason = "Shipped"
	// ReasonCheckFailed (Shipped false): with the present edits, the shipped policy
	// of the release would not compile or would break another policy. The policy is
	// unchanged. The message says where.
	ReasonCheckFailed ConditionReason = "CheckFailed"
	// ReasonApplyFailed (Shipped false): the API server rejected the shipped policy
	// of the release. The message says why.
	ReasonApplyFailed ConditionReason = "ApplyFailed"
	// ReasonUnreadable (Shipped false): the ConfigMap with the shipped policies
	// has an entry for it that cannot be read. The message says why.
	ReasonUnreadable ConditionReason = "Unreadable"
	// ReasonNameTaken (Shipped false): the release ships a policy of this name, but
	// Sallyport did not create this one and leaves it alone.
	ReasonNameTaken ConditionReason = "NameTaken"

	// ReasonAsShipped (Edited false): all fields are as shipped.
	ReasonAsShipped ConditionReason = "AsShipped"
	// ReasonFieldsEdited (Edited true): the message lists the fields that differ.
	ReasonFieldsEdited ConditionReason = "FieldsEdited"
)
