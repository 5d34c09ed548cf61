package webhooks

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// ourselves is who asks where nobody requests anything. The prefix is Kubernetes' own, so that no person has the name. Policies may
// go by it: servers-tenancy does not tell a namespace where we have found a machine.
const ourselves = "system:sallyport"

// Placement is what the policies say of where a machine is, or is to be.
type Placement struct {
	Ruling
	// Datastores are the inventory paths of datastores, and of folders of them, that one is chosen of for a machine that is to be made and
	// names none.
	Datastores []string
}

// Admits asks the policies about a machine as if it were created now by ourselves, with every fact read live: whoever is
// about to speak to a vCenter in its name asks before the first call, and again when the machine's spec or the VSphereServer
// has changed. Admission saw what the spec says; the copy that is given here has in spec.runtime.vsphere.inventoryPath where
// the machine really is, beside an instanceUUID if the spec has one, or in clone.folder the folder that it is in.
//
// Only those policies are asked that read VSphereServers: what others have against a creation is no reason to leave a machine
// alone that exists. An error means that no ruling could be made; it is to be tried again.
func (g *Gate) Admits(ctx context.Context, machine *v1alpha1.VirtualMachine) (p Placement, err error) {
	review, err := reviewOfMachine(machine)
	if err != nil {
		return p, fmt.Errorf("building the request for VirtualMachine %s: %w", machine.Name, err)
	}
	d, err := g.decided(ctx, review, live{g.reader(review)})
	if err != nil {
		return p, err
	}
	for _, v := range d.verdicts {
		if v.err != nil {
			continue
		}
		p.Datastores = append(p.Datastores, v.decision.Outcome.Get(catalog.OutcomeDatastores).Texts()...)
	}
	p.Ruling, err = d.ruling()
	return p, err
}

// AdmitsDisk is Admits for a disk, which is judged by where its spec has it.
func (g *Gate) AdmitsDisk(ctx context.Context, disk *v1alpha1.VirtualDisk) (Ruling, error) {
	d := disk.DeepCopy()
	d.Status, d.ManagedFields = v1alpha1.VirtualDiskStatus{}, nil
	return g.admitsNew(ctx, d)
}

// AdmitsTemplate is Admits for a template, which is judged by where the failure domains of its spec have it.
func (g *Gate) AdmitsTemplate(ctx context.Context, template *v1alpha1.VSphereTemplate) (Ruling, error) {
	t := template.DeepCopy()
	t.Status, t.ManagedFields = v1alpha1.VSphereTemplateStatus{}, nil
	return g.admitsNew(ctx, t)
}

// AdmitsMove asks the policies about a move that the spec of a machine wants, with every fact read live, as if the machine's spec.nodeName
// were changed now, by ourselves, from the node in its status to that one. Admission judged the change of the spec, maybe long ago and
// beside many others. An error means that no ruling could be made; it is to be tried again.
//
// Only policies that read objects are asked: any other would say what it said at admission, of the user who made the request.
func (g *Gate) AdmitsMove(ctx context.Context, machine *v1alpha1.VirtualMachine, node string) (Ruling, error) {
	before := machine.DeepCopy()
	before.Spec.NodeName = machine.Status.NodeName
	after := before.DeepCopy()
	after.Spec.NodeName = node
	review, err := reviewOfChange(before, after)
	if err != nil {
		return Ruling{}, fmt.Errorf("building the request for the move of VirtualMachine %s: %w", machine.Name, err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// AdmitsSize asks the policies about the size that the spec of a machine wants, with every fact read live, as if its spec were changed now, by
// ourselves, from the size in status.allocated. Admission judged the change of the spec beside others of which it knew nothing. An error means
// that no ruling could be made; it is to be tried again.
func (g *Gate) AdmitsSize(ctx context.Context, machine *v1alpha1.VirtualMachine) (Ruling, error) {
	before := machine.DeepCopy()
	was := before.Status.Allocated
	if was == nil {
		was = &v1alpha1.VSphereAllocation{}
	}
	before.Spec.CPU, before.Spec.Memory = was.CPU, was.Memory
	review, err := reviewOfChange(before, machine.DeepCopy())
	if err != nil {
		return Ruling{}, fmt.Errorf("building the request for the size of VirtualMachine %s: %w", machine.Name, err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// admitsNew asks about an object as it is when it is created.
func (g *Gate) admitsNew(ctx context.Context, o client.Object) (Ruling, error) {
	review, err := reviewOfOurs(o, authenticationv1.UserInfo{Username: ourselves})
	if err != nil {
		return Ruling{}, fmt.Errorf("building the request for %s %s: %w", v1alpha1.KindOf(o).Name, o.GetName(), err)
	}
	return g.arbitrate(ctx, review, live{g.reader(review)})
}

// reviewOfChange is the UPDATE request of ourselves that changes a machine.
func reviewOfChange(before, after *v1alpha1.VirtualMachine) (*Review, error) {
	before.ManagedFields, after.ManagedFields = nil, nil
	old, err := unstructuredOf(before)
	if err != nil {
		return nil, err
	}
	review, err := reviewOfOurs(after, authenticationv1.UserInfo{Username: ourselves})
	if err != nil {
		return nil, err
	}
	request := *review.Request
	request.Operation, request.OldObject.Object = admissionv1.Update, old
	return NewReview(&request)
}

// reviewOfMachine is the CREATE request of a machine that exists already. An object has no status when it is created; what is left
// tells a machine that was made from one that is yet to be, for which servers-quota has to have room.
func reviewOfMachine(machine *v1alpha1.VirtualMachine) (*Review, error) {
	m := machine.DeepCopy()
	m.Status, m.ManagedFields = v1alpha1.VirtualMachineStatus{InstanceID: machine.Status.InstanceID}, nil
	return reviewOfOurs(m, authenticationv1.UserInfo{Username: ourselves})
}
