package decision

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// sallyportUser is the user name of requests that Sallyport makes itself. Kubernetes reserves the prefix, so no person has the name.
// Policies may test for it: servers-tenancy gives such requests no details of where a machine was found.
const sallyportUser = "system:sallyport"

// Placement is the result of evaluating where a machine is or will be.
type Placement struct {
	Admission
	// Datastores are inventory paths of datastores and of folders of datastores. The runtime chooses among them for a new machine
	// whose spec names none.
	Datastores []string
}

// Admits evaluates the policies for a machine as if Sallyport created it now, with live facts. Callers ask before their first call
// to a vCenter on behalf of the machine, and again when the machine's spec or the VSphereServer has changed. Admission evaluated
// what the spec says; the copy passed here has in spec.runtime.vsphere.inventoryPath where the machine really is (beside an
// instanceUUID if the spec has one), or in clone.folder the folder that contains it.
//
// Only policies that read VSphereServers are evaluated: other rules about creation do not apply to a machine that exists. An
// error means that the policies could not be evaluated; the caller retries.
func (g *Decider) Admits(ctx context.Context, machine *v1alpha1.VirtualMachine) (p Placement, err error) {
	review, err := reviewOfMachine(machine)
	if err != nil {
		return p, fmt.Errorf("building the request for VirtualMachine %s: %w", machine.Name, err)
	}
	d, err := g.decided(ctx, review, live{g.reader(review)})
	if err != nil {
		return p, err
	}
	for _, v := range d.verdicts {
		if v.Err != nil {
			continue
		}
		p.Datastores = append(p.Datastores, v.Decision.Outcome.Get(catalog.OutcomeDatastores).Texts()...)
	}
	p.Admission, err = d.admission()
	return p, err
}

// AdmitsDisk is Admits for a disk, with the place that its spec names.
func (g *Decider) AdmitsDisk(ctx context.Context, disk *v1alpha1.VirtualDisk) (Admission, error) {
	d := disk.DeepCopy()
	d.Status, d.ManagedFields = v1alpha1.VirtualDiskStatus{}, nil
	return g.admitsNew(ctx, d)
}

// AdmitsTemplate is Admits for a template, with the places that the failure domains of its spec name.
func (g *Decider) AdmitsTemplate(ctx context.Context, template *v1alpha1.VSphereTemplate) (Admission, error) {
	t := template.DeepCopy()
	t.Status, t.ManagedFields = v1alpha1.VSphereTemplateStatus{}, nil
	return g.admitsNew(ctx, t)
}

// AdmitsMove evaluates the policies for a move that the spec of a machine requests, with live facts, as if Sallyport changed
// spec.nodeName now from the node in the status to node. Admission evaluated the change of the spec, maybe long ago and
// concurrently with others. An error means that the policies could not be evaluated; the caller retries.
//
// Only policies that read objects are evaluated: any other would give the result that it gave at admission, for the user who
// made the request.
func (g *Decider) AdmitsMove(ctx context.Context, machine *v1alpha1.VirtualMachine, node string) (Admission, error) {
	before := machine.DeepCopy()
	before.Spec.NodeName = machine.Status.NodeName
	after := before.DeepCopy()
	after.Spec.NodeName = node
	review, err := reviewOfChange(before, after)
	if err != nil {
		return Admission{}, fmt.Errorf("building the request for the move of VirtualMachine %s: %w", machine.Name, err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// AdmitsSize evaluates the policies for the size that the spec of a machine requests, with live facts, as if Sallyport changed the
// spec now from the size in status.allocated. Admission evaluated the change without knowing of concurrent ones. An error means
// that the policies could not be evaluated; the caller retries.
func (g *Decider) AdmitsSize(ctx context.Context, machine *v1alpha1.VirtualMachine) (Admission, error) {
	before := machine.DeepCopy()
	was := before.Status.Allocated
	if was == nil {
		was = &v1alpha1.VSphereAllocation{}
	}
	before.Spec.CPU, before.Spec.Memory = was.CPU, was.Memory
	review, err := reviewOfChange(before, machine.DeepCopy())
	if err != nil {
		return Admission{}, fmt.Errorf("building the request for the size of VirtualMachine %s: %w", machine.Name, err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// admitsNew evaluates the creation of o by Sallyport.
func (g *Decider) admitsNew(ctx context.Context, o client.Object) (Admission, error) {
	review, err := reviewOfOurs(o, authenticationv1.UserInfo{Username: sallyportUser})
	if err != nil {
		return Admission{}, fmt.Errorf("building the request for %s %s: %w", v1alpha1.KindOf(o).Name, o.GetName(), err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// reviewOfChange returns Sallyport's UPDATE request from before to after.
func reviewOfChange(before, after *v1alpha1.VirtualMachine) (*Review, error) {
	before.ManagedFields, after.ManagedFields = nil, nil
	old, err := unstructuredOf(before)
	if err != nil {
		return nil, err
	}
	review, err := reviewOfOurs(after, authenticationv1.UserInfo{Username: sallyportUser})
	if err != nil {
		return nil, err
	}
	request := *review.Request
	request.Operation, request.OldObject.Object = admissionv1.Update, old
	return NewReview(&request)
}

// reviewOfMachine returns the CREATE request for a machine that exists already. An object has no status when it is created. The
// instance ID stays: it tells servers-quota that the machine exists in the vCenter and needs no additional room.
func reviewOfMachine(machine *v1alpha1.VirtualMachine) (*Review, error) {
	m := machine.DeepCopy()
	m.Status, m.ManagedFields = v1alpha1.VirtualMachineStatus{InstanceID: machine.Status.InstanceID}, nil
	return reviewOfOurs(m, authenticationv1.UserInfo{Username: sallyportUser})
}
