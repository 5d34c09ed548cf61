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

// ConditionReason is the reason of a condition, one CamelCase word. A denial by
// a policy brings its own reason, which is any such word.
type ConditionReason string

// maxMessage is how many bytes of a message a condition keeps. The schema of
// conditions allows some more.
const maxMessage = 4096

// Condition is a condition of this type, ready to be set on an object of that
// generation. The message must stay the same for as long as nothing changed. What
// is too long for a condition is cut.
func (t ConditionType) Condition(status metav1.ConditionStatus, reason ConditionReason, generation int64, message string) metav1.Condition {
	return metav1.Condition{
		Type:               string(t),
		Status:             status,
		ObservedGeneration: generation,
		Reason:             string(reason),
		Message:            Cut(message, maxMessage),
	}
}

// Cut gives as much of a text as fits into so many bytes.
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
// true when the object is as its spec wants it: the machine is in the state and
// place that are wanted, the operation has completed, the policy decides.
const ConditionReady ConditionType = "Ready"

// ConditionPlacementSettled of a VirtualMachine is true when the machine is on
// the node that is wanted, or when none is. Set by the VirtualMachine reconciler.
const ConditionPlacementSettled ConditionType = "PlacementSettled"

// ConditionRestartRequired of a VirtualMachine is true while the machine is on
// and its spec asks for a size that it can only be given by a restart. Set by the
// VirtualMachine reconciler, on machines that were made.
const ConditionRestartRequired ConditionType = "RestartRequired"

// Reasons of a VirtualMachine's conditions.
const (
	// ReasonAsWanted (Ready true): the machine is in the power state and place
	// that are wanted.
	ReasonAsWanted ConditionReason = "AsWanted"
	// ReasonSpecDiffers (RestartRequired true): the message says what the spec
	// asks for and what the machine has.
	ReasonSpecDiffers ConditionReason = "SpecDiffers"
	// ReasonProvisioning (Ready false): the machine is being created or adopted.
	ReasonProvisioning ConditionReason = "Provisioning"
	// ReasonOperationInProgress (Ready false): an operation holds the machine or
	// is still being undone. The message names it.
	ReasonOperationInProgress ConditionReason = "OperationInProgress"
	// ReasonPowerStateDiffers (Ready false): the machine is on or off against
	// what is wanted, and its run policy does not let that be changed.
	ReasonPowerStateDiffers ConditionReason = "PowerStateDiffers"
	// ReasonInstanceNotFound (Ready false): the runtime does not know the
	// machine, which was never seen.
	ReasonInstanceNotFound ConditionReason = "InstanceNotFound"
	// ReasonInvalidSpec (Ready false): what the spec says cannot be carried out
	// on the runtime, such as a template that it does not have. The message begins
	// with the field. It is tried again.
	ReasonInvalidSpec ConditionReason = "InvalidSpec"
	// ReasonInstanceLost (Ready false): the runtime does not know the machine
	// any more. It is off, and is not made again.
	ReasonInstanceLost ConditionReason = "InstanceLost"
	// ReasonOwnedByAnother (Ready false): the machine on the runtime belongs to
	// another VirtualMachine or another cluster, and was left alone.
	ReasonOwnedByAnother ConditionReason = "OwnedByAnother"
	// ReasonRuntimeUnavailable (Ready unknown or false): the runtime does not
	// answer. What the status says is as it was last seen.
	ReasonRuntimeUnavailable ConditionReason = "RuntimeUnavailable"
	// ReasonDisconnected (Ready unknown): the runtime lost the connection to the
	// machine, such as a vCenter to its host. What the status says is as it was
	// last seen.
	ReasonDisconnected ConditionReason = "Disconnected"
	// ReasonQuestionPending (Ready false): the runtime waits for an answer from
	// people before the machine goes on. The message has the question.
	ReasonQuestionPending ConditionReason = "QuestionPending"
	// ReasonToolsNotRunning (Ready false): the tools in the guest ran since the
	// last power-on, and do not run any more.
	ReasonToolsNotRunning ConditionReason = "ToolsNotRunning"
	// ReasonPermissionDenied (Ready false): the runtime refuses for lack of
	// rights. The message names the right.
	ReasonPermissionDenied ConditionReason = "PermissionDenied"
	// ReasonRuntimeNotSupported (Ready false): there is no runtime of the kind
	// that the spec names.
	ReasonRuntimeNotSupported ConditionReason = "RuntimeNotSupported"
	// ReasonTakingOver (Ready unknown): this replica has just taken over from
	// another one that may still be at work, and sends nothing yet.
	ReasonTakingOver ConditionReason = "TakingOver"
	// ReasonStartPaused (Ready false): the machine went off, or failed to start,
	// soon after the run policy had started it, and is started again after a pause.
	ReasonStartPaused ConditionReason = "StartPaused"
	// ReasonProvisioned (an event's only): the machine was made or adopted.
	ReasonProvisioned ConditionReason = "Provisioned"
	// ReasonAbandoned (an event's only): the object was deleted without asking
	// the runtime, which may still have the machine.
	ReasonAbandoned ConditionReason = "Abandoned"
	// ReasonTerminating (Ready false): the object is being deleted.
	ReasonTerminating ConditionReason = "Terminating"

	// ReasonNodeNotChosen (PlacementSettled true): neither the spec nor an
	// operation names a node.
	ReasonNodeNotChosen ConditionReason = "NodeNotChosen"
	// ReasonOnNode (PlacementSettled true): the machine is on the node that is
	// wanted.
	ReasonOnNode ConditionReason = "OnNode"
	// ReasonMigrationNeeded (PlacementSettled false): the machine is on another
	// node than the one that is wanted, and is about to be moved or could not be:
	// the message says why.
	ReasonMigrationNeeded ConditionReason = "MigrationNeeded"
	// ReasonMoveNotDecided (PlacementSettled false): the policies could not judge
	// the move, and are asked again. The message says what failed. A policy that
	// refuses the move for now gives its own reason, such as TooManyMigrations.
	ReasonMoveNotDecided ConditionReason = "MoveNotDecided"
	// ReasonMigrating (PlacementSettled false): the machine is on its way.
	ReasonMigrating ConditionReason = "Migrating"
	// ReasonSourceUnreachable (PlacementSettled false): the machine is on its way,
	// and a node that has to do something for that is gone or not ready. The
	// message says how a person confirms that it is dead.
	ReasonSourceUnreachable ConditionReason = "SourceUnreachable"
	// ReasonRegistryUnavailable (PlacementSettled false): the machine is on its
	// way, and the registry does not show its snapshot.
	ReasonRegistryUnavailable ConditionReason = "RegistryUnavailable"
	// ReasonUnscheduled (PlacementSettled false): the machine is on its way, and no
	// node has taken it yet.
	ReasonUnscheduled ConditionReason = "Unscheduled"
	// ReasonInstanceInTheWay (PlacementSettled false): the machine is on its way,
	// and there is a Pod of its name that is not an instance of the move.
	ReasonInstanceInTheWay ConditionReason = "InstanceInTheWay"
	// ReasonRolledBack (PlacementSettled false): the machine could not be moved to
	// the node that is wanted, and was restored on another one. It is not moved
	// again until spec.nodeName changes or an operation moves it.
	ReasonRolledBack ConditionReason = "RolledBack"
	// ReasonNodeUnknown (PlacementSettled unknown): the node that the machine is
	// on is not known.
	ReasonNodeUnknown ConditionReason = "NodeUnknown"

	// ReasonDisksAttached (DisksAttached true): they are attached.
	ReasonDisksAttached ConditionReason = "DisksAttached"
	// ReasonDiskNotFound (DisksAttached false): there is no VirtualDisk of a name that
	// the spec has.
	ReasonDiskNotFound ConditionReason = "DiskNotFound"
	// ReasonDiskNotReady (DisksAttached false): a disk is not made yet, is lost, or is
	// being deleted.
	ReasonDiskNotReady ConditionReason = "DiskNotReady"
	// ReasonDiskInUse (DisksAttached false): another
	// VirtualMachine has the disk. The message names it.
	ReasonDiskInUse ConditionReason = "DiskInUse"
	// ReasonDiskElsewhere (DisksAttached false): a disk is on another runtime or
	// server than the machine.
	ReasonDiskElsewhere ConditionReason = "DiskElsewhere"
	// ReasonAttaching (DisksAttached false): disks are being attached or detached, or
	// are to be.
	ReasonAttaching ConditionReason = "Attaching"
)

const (
	// ConditionSignalSent of a VirtualMachineOperation is true once the runtime
	// confirmed that it was told, and unknown from just before it is told. Set
	// by the operation reconciler.
	ConditionSignalSent ConditionType = "SignalSent"
	// ConditionCompleted of a VirtualMachineOperation is true when it ended as
	// it should or a stronger one took its place, false before and after a
	// failure. Its reason is the word to look at. Set by the operation
	// reconciler.
	ConditionCompleted ConditionType = "Completed"
	// ConditionSuperseded of a VirtualMachineOperation is true once a stronger
	// operation took its place. Set by the operation reconciler, for
	// kubectl wait.
	ConditionSuperseded ConditionType = "Superseded"
)

// Reasons of a VirtualMachineOperation's conditions. Completed of an operation
// that was refused after its creation carries the reason of the policy instead.
const (
	// ReasonSending (SignalSent unknown): the runtime is about to be told, or was
	// told without an answer.
	ReasonSending ConditionReason = "Sending"
	// ReasonSent (SignalSent true): the runtime confirmed that it was told.
	ReasonSent ConditionReason = "Sent"
	// ReasonNothingToSend (SignalSent false): the machine already was as it
	// should be.
	ReasonNothingToSend ConditionReason = "NothingToSend"

	// ReasonWaiting (Completed false): another operation holds the machine or is
	// still being undone. The message names it.
	ReasonWaiting ConditionReason = "Waiting"
	// ReasonInProgress (Completed false): the operation holds the machine.
	ReasonInProgress ConditionReason = "InProgress"
	// ReasonNotDecided (Completed false): a policy could not judge the operation,
	// which is tried again until the deadline. The message says what failed.
	ReasonNotDecided ConditionReason = "NotDecided"
	// ReasonSucceeded (Completed true): the machine was seen in the wanted state.
	ReasonSucceeded ConditionReason = "Succeeded"
	// ReasonSuperseded (Completed true, Superseded true): a stronger operation
	// took its place.
	ReasonSuperseded ConditionReason = "Superseded"
	// ReasonNotSuperseded (Superseded false): it has its place.
	ReasonNotSuperseded ConditionReason = "NotSuperseded"
	// ReasonDeadlineExceeded (Completed false): its time was up.
	ReasonDeadlineExceeded ConditionReason = "DeadlineExceeded"
	// ReasonDeleted (Completed false): it was deleted before its end.
	ReasonDeleted ConditionReason = "Deleted"
	// ReasonAttemptFailed (Completed false): the runtime could not do it, or could
	// not be told, and it is tried again until the deadline. The message is the
	// runtime's.
	ReasonAttemptFailed ConditionReason = "AttemptFailed"
	// ReasonRuntimeFailed (Completed false): the runtime cannot do it. The
	// message is the runtime's.
	ReasonRuntimeFailed ConditionReason = "RuntimeFailed"
	// ReasonVirtualMachineDeleted (Completed false): the machine is being deleted
	// or is gone.
	ReasonVirtualMachineDeleted ConditionReason = "VirtualMachineDeleted"
	// ReasonVirtualMachineReplaced (Completed false): the machine of that name is
	// another one than when the operation was asked for.
	ReasonVirtualMachineReplaced ConditionReason = "VirtualMachineReplaced"
)

const (
	// ConditionAvailable of a VirtualMachinePool is true when at least as many
	// members run as are wanted. Set by the pool reconciler.
	ConditionAvailable ConditionType = "Available"
	// ConditionProgressing of a VirtualMachinePool is true while members are made
	// or given up. Set by the pool reconciler.
	ConditionProgressing ConditionType = "Progressing"
	// ConditionSynced of a VirtualMachinePool is true when all members have the
	// present template, and none waits for a restart for it. Set by the pool
	// reconciler.
	ConditionSynced ConditionType = "Synced"
	// ConditionScaleDownBlocked of a VirtualMachinePool is true when members should
	// go and do not. The message names them and says why. Set by the pool
	// reconciler.
	ConditionScaleDownBlocked ConditionType = "ScaleDownBlocked"
)

// Reasons of a VirtualMachinePool's conditions. Ready has the reason of the
// condition that keeps it from being true.
const (
	// ReasonAllReplicasReady (Available true): enough members run.
	ReasonAllReplicasReady ConditionReason = "AllReplicasReady"
	// ReasonInsufficientReadyReplicas (Available false): fewer members run than are
	// wanted.
	ReasonInsufficientReadyReplicas ConditionReason = "InsufficientReadyReplicas"
	// ReasonReplicasProgressing (Progressing true): there are more or fewer members
	// than are wanted.
	ReasonReplicasProgressing ConditionReason = "ReplicasProgressing"
	// ReasonSteady (Progressing false): there are as many members as are wanted.
	ReasonSteady ConditionReason = "Steady"
	// ReasonFailedCreate (Progressing false): members cannot be made, which is tried
	// again. The message says why.
	ReasonFailedCreate ConditionReason = "FailedCreate"
	// ReasonPoolSynced (Synced true): all members have the present template.
	ReasonPoolSynced ConditionReason = "PoolSynced"
	// ReasonRolloutInProgress (Synced false): members have an earlier template, or are
	// of another release of the VSphereTemplate that the pool follows.
	ReasonRolloutInProgress ConditionReason = "RolloutInProgress"
	// ReasonRolloutFailed (Synced false): a member could not be given the present
	// template, which is tried again. The message says why.
	ReasonRolloutFailed ConditionReason = "RolloutFailed"
	// ReasonRestartPendingApproval (Synced false): members have the present template
	// and wait for somebody to restart them, or to delete those of another release.
	ReasonRestartPendingApproval ConditionReason = "RestartPendingApproval"
	// ReasonMembersBusy (ScaleDownBlocked true, Progressing false): the members that could go are busy.
	// With Synced false: those that are to be replaced are.
	ReasonMembersBusy ConditionReason = "MembersBusy"
	// ReasonDeletionRefused (ScaleDownBlocked true, Progressing false): a policy refuses the deletion of
	// members that should go. With Synced false: of those that are to be replaced.
	ReasonDeletionRefused ConditionReason = "DeletionRefused"
	// ReasonNobodyNamed (ScaleDownBlocked true, Progressing false): there are more members than wanted,
	// and scaleDownPolicy Explicit gives up only those that are named.
	ReasonNobodyNamed ConditionReason = "NobodyNamed"
	// ReasonNotBlocked (ScaleDownBlocked false): no member that should go is kept.
	ReasonNotBlocked ConditionReason = "NotBlocked"
)

// ConditionDisksAttached of a VirtualMachine is true when the disks that its spec
// names are attached and no others of the kind are. Absent while there are none.
// Set by the VirtualMachine reconciler.
const ConditionDisksAttached ConditionType = "DisksAttached"

// Reasons of a VirtualDisk's conditions. One that is deleted while a machine has it has DiskInUse.
const (
	// ReasonDiskReady (Ready true): the disk exists and is as large as wanted.
	ReasonDiskReady ConditionReason = "DiskReady"
	// ReasonDiskLost (Ready false): the runtime does not know the disk any more. It
	// is not made again.
	ReasonDiskLost ConditionReason = "DiskLost"
	// ReasonResizing (Ready false): the disk is smaller than the spec says.
	ReasonResizing ConditionReason = "Resizing"
)

const (
	// ConditionCompiled of a RegoPolicy is true when its current generation
	// compiles and keeps to the contract. Set by the policy reconciler.
	ConditionCompiled ConditionType = "Compiled"
	// ConditionTestsPassed of a RegoPolicy is true when all tests of its current
	// generation passed, with the libraries that there are. Set by the policy
	// reconciler.
	ConditionTestsPassed ConditionType = "TestsPassed"
	// ConditionReadsGranted of a RegoPolicy is true when every kind in spec.reads
	// is served and may be read. Set by the policy reconciler.
	ConditionReadsGranted ConditionType = "ReadsGranted"
	// ConditionActive of a RegoPolicy is true when it decides, in its current or
	// in its last good revision; the reason says which. Set by the policy
	// reconciler.
	ConditionActive ConditionType = "Active"
	// ConditionShipped of a RegoPolicy is true when what this release ships of it
	// has been applied, but for what somebody edited. Absent on policies that are
	// not shipped. Set by the policy reconciler of the release that is installed.
	ConditionShipped ConditionType = "Shipped"
	// ConditionRegistered of a RegoPolicy is true when the API server asks it about
	// every kind that it matches. Absent on policies that match nothing but
	// Sallyport's own kinds, for which the chart registers the webhooks. Set by the
	// policy reconciler.
	ConditionRegistered ConditionType = "Registered"
	// ConditionAudited of a RegoPolicy is true when every object that it is asked
	// about was held against it; otherwise the message says which were not.
	// Absent unless spec.backgroundAudit is Enabled. Set by the policy reconciler.
	ConditionAudited ConditionType = "Audited"
	// ConditionReported of a RegoPolicy is true when what an audit found is in
	// reports of openreports.io. Absent unless spec.backgroundAudit is Enabled and
	// reports are wanted (chart value audits.reports). Set by the policy
	// reconciler.
	ConditionReported ConditionType = "Reported"
	// ConditionEdited of a RegoPolicy is true when fields of it differ from what
	// this release ships because somebody changed, added or removed them; the
	// message lists them. Absent on policies that are not shipped. Set by the
	// policy reconciler.
	ConditionEdited ConditionType = "Edited"
)

// Reasons of a RegoPolicy's conditions.
const (
	// ReasonCompiled (Compiled true): it compiles.
	ReasonCompiled ConditionReason = "Compiled"
	// ReasonCompileFailed (Compiled false): it does not compile. The message
	// names file, line and column.
	ReasonCompileFailed ConditionReason = "CompileFailed"
	// ReasonContractBroken (Compiled false): it compiles but does not keep to the
	// contract between policies and Sallyport. The message says where.
	ReasonContractBroken ConditionReason = "ContractBroken"
	// ReasonParametersInvalid (Compiled false): its parameters are not what
	// spec.parametersSchema or its rule valid_parameters wants, or the schema is
	// none. The message names the field.
	ReasonParametersInvalid ConditionReason = "ParametersInvalid"
	// ReasonLimitExceeded (Compiled false): it takes too long to compile, or
	// needs too much memory, by itself or with the policies that are older. The
	// message says how much there is.
	ReasonLimitExceeded ConditionReason = "LimitExceeded"
	// ReasonLibraryMissing (Compiled false, Active false): it imports a library
	// that is not there.
	ReasonLibraryMissing ConditionReason = "LibraryMissing"

	// ReasonLibraryConflict (Compiled false): it is a library with names that
	// another library has already. The message names it.
	ReasonLibraryConflict ConditionReason = "LibraryConflict"

	// ReasonTestsPassed (TestsPassed true): every test passed.
	ReasonTestsPassed ConditionReason = "TestsPassed"
	// ReasonTestsFailed (TestsPassed false): the message names the tests that
	// failed, or what cannot be run of them.
	ReasonTestsFailed ConditionReason = "TestsFailed"
	// ReasonTestsMissing (TestsPassed false): it has no tests.
	ReasonTestsMissing ConditionReason = "TestsMissing"
	// ReasonTestsNotRun (TestsPassed unknown): its tests could not be run, as when
	// it does not compile. The message says why.
	ReasonTestsNotRun ConditionReason = "TestsNotRun"

	// ReasonReadsGranted (ReadsGranted true): everything it asks for can be read.
	ReasonReadsGranted ConditionReason = "ReadsGranted"
	// ReasonReadsForbidden (ReadsGranted false): Sallyport may not read a kind
	// that it asks for. The message names the kind.
	ReasonReadsForbidden ConditionReason = "ReadsForbidden"
	// ReasonKindNotServed (ReadsGranted false): a kind that it asks for does not
	// exist in this cluster. The message names the kind.
	ReasonKindNotServed ConditionReason = "KindNotServed"
	// ReasonReadsNotSynced (ReadsGranted unknown): what it asks for is being read
	// for the first time.
	ReasonReadsNotSynced ConditionReason = "ReadsNotSynced"
	// ReasonReadsFailed (ReadsGranted false): something that it asks for cannot be
	// read. The message says why.
	ReasonReadsFailed ConditionReason = "ReadsFailed"

	// ReasonCurrentRevision (Active true): the current generation decides.
	ReasonCurrentRevision ConditionReason = "CurrentRevision"
	// ReasonLastGoodRevision (Active true): the current generation is broken and
	// the last good one decides.
	ReasonLastGoodRevision ConditionReason = "LastGoodRevision"
	// ReasonNoGoodRevision (Active false, Registered false): nothing decides.
	// Requests that it matches follow spec.onError; those for kinds that it was not
	// registered for before pass.
	ReasonNoGoodRevision ConditionReason = "NoGoodRevision"
	// ReasonNobodyDecides (Active false): no replica of Sallyport is running, as
	// after an uninstall. Set by the last one that ends, and by kubectl sallyport
	// release.
	ReasonNobodyDecides ConditionReason = "NobodyDecides"

	// ReasonRegistered (Registered true): the API server asks it.
	ReasonRegistered ConditionReason = "Registered"
	// ReasonWaitingForReplicas (Registered false, Ready false or unknown): a replica
	// that is live does not serve this revision yet, or an API server may not know
	// yet that it changes objects. The message says which.
	ReasonWaitingForReplicas ConditionReason = "WaitingForReplicas"
	// ReasonNotRegistrable (Registered false, Ready false): spec.match has what
	// webhooks cannot be registered for. The message says what.
	ReasonNotRegistrable ConditionReason = "NotRegistrable"
	// ReasonResourceNotServed (Registered false, Ready false): spec.match names a
	// resource, a version, a subresource or an operation that the cluster does not
	// have. All else is asked about, and so is that when it is there. The message
	// says what.
	ReasonResourceNotServed ConditionReason = "ResourceNotServed"
	// ReasonRegistrationFailed (Registered false, Ready false): the webhook configuration could
	// not be written. The message says why.
	ReasonRegistrationFailed ConditionReason = "RegistrationFailed"

	// ReasonAudited (Audited true): every object was looked at.
	ReasonAudited ConditionReason = "Audited"
	// ReasonAuditIncomplete (Audited false, Reported false): not every object was
	// looked at, or could be judged. The message says why, such as a kind that
	// Sallyport may not list.
	ReasonAuditIncomplete ConditionReason = "AuditIncomplete"
	// ReasonReported (Reported true): the reports say what the last audit found.
	// The message counts them, and what is left out of them.
	ReasonReported ConditionReason = "Reported"
	// ReasonReportsNotServed (Reported false): the cluster does not have the kinds
	// of reports.
	ReasonReportsNotServed ConditionReason = "ReportsNotServed"
	// ReasonReportNameTaken (Reported false): objects of somebody else's have the
	// names of reports and are left alone. The message names them.
	ReasonReportNameTaken ConditionReason = "ReportNameTaken"
	// ReasonReportsEdited (Reported false): others keep changing the reports, which
	// are put right and may meanwhile not say what was found. The message names one.
	ReasonReportsEdited ConditionReason = "ReportsEdited"
	// ReasonReportsFailed (Reported false): reports could not be written. The
	// message says why.
	ReasonReportsFailed ConditionReason = "ReportsFailed"

	// ReasonShipped (Shipped true): what the release ships has been applied. The
	// message names the release.
	ReasonShipped ConditionReason = "Shipped"
	// ReasonCheckFailed (Shipped false): with the edits that are there, what the
	// release ships would not compile, or would break a policy that works. It
	// stays as it was. The message says where.
	ReasonCheckFailed ConditionReason = "CheckFailed"
	// ReasonApplyFailed (Shipped false): the API server refused what the release
	// ships. The message says why.
	ReasonApplyFailed ConditionReason = "ApplyFailed"
	// ReasonUnreadable (Shipped false): the ConfigMap with the shipped policies
	// has an entry for it that cannot be read. The message says why.
	ReasonUnreadable ConditionReason = "Unreadable"
	// ReasonNameTaken (Shipped false): the release ships a policy of this name,
	// but this one was made by somebody else and is left alone.
	ReasonNameTaken ConditionReason = "NameTaken"

	// ReasonAsShipped (Edited false): nobody changed what was shipped.
	ReasonAsShipped ConditionReason = "AsShipped"
	// ReasonFieldsEdited (Edited true): the message lists the fields that differ.
	ReasonFieldsEdited ConditionReason = "FieldsEdited"
)
