package why

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

type imageReport struct {
	UID    string                     `json:"uid"`
	Spec   v1alpha1.VMDiskImageSpec   `json:"spec"`
	Status v1alpha1.VMDiskImageStatus `json:"status"`
	// Reconciled reports whether the status is about the current spec.
	Reconciled bool `json:"reconciled"`
	// Terminating reports whether it is being deleted.
	Terminating bool `json:"terminating,omitempty"`
	// Waiting are the VirtualMachines and VirtualDisks of the namespace that name the image and do not use it yet, with their
	// resource names. A disk of a machine counts as the machine.
	Waiting []string `json:"waiting,omitempty"`
}

// image adds what a VMDiskImage waits for, who uses it, and who waits for it.
func (l *looking) image(ctx context.Context) error {
	i := &v1alpha1.VMDiskImage{}
	if !l.decode(i) {
		return nil
	}
	l.r.Image = &imageReport{
		UID: string(i.UID), Spec: i.Spec, Status: i.Status, Reconciled: i.Status.ObservedGeneration == i.Generation,
		Terminating: !i.DeletionTimestamp.IsZero(),
	}
	this := client.ObjectKeyFromObject(i)
	var machines v1alpha1.VirtualMachineList
	if err := l.List(ctx, &machines, client.InNamespace(i.Namespace)); err != nil {
		l.r.unknown("machines that wait for the image", err)
	}
	for j := range machines.Items {
		if vm := &machines.Items[j]; vm.Status.Phase == v1alpha1.VirtualMachineWaitingForImage && vm.Spec.DiskImage != nil && vm.Spec.DiskImage.Ref.In(vm.Namespace) == this {
			l.r.Image.Waiting = append(l.r.Image.Waiting, "svm/"+vm.Name)
		}
	}
	var disks v1alpha1.VirtualDiskList
	if err := l.List(ctx, &disks, client.InNamespace(i.Namespace)); err != nil {
		l.r.unknown("disks that wait for the image", err)
	}
	for j := range disks.Items {
		d := &disks.Items[j]
		if s := d.Spec.Source; s != nil && s.Image.In(d.Namespace) == this && d.Status.Image == nil && metav1.GetControllerOfNoCopy(d) == nil {
			l.r.Image.Waiting = append(l.r.Image.Waiting, "svd/"+d.Name)
		}
	}
	return nil
}

func (r *imageReport) Text(p *cli.Page) {
	var waits []string
	for _, about := range []v1alpha1.ConditionType{v1alpha1.ConditionReady, v1alpha1.ConditionDeletionBlocked} {
		c := about.In(r.Status.Conditions)
		if about == v1alpha1.ConditionReady && r.Terminating && v1alpha1.ConditionDeletionBlocked.In(r.Status.Conditions) != nil {
			continue // it says the same
		}
		if c != nil && (c.Status == metav1.ConditionTrue) == (about == v1alpha1.ConditionDeletionBlocked) {
			waits = append(waits, cli.OneLine(c.Type+" "+p.Condition(c)))
		}
	}
	p.Row("Phase:", cmp.Or(string(r.Status.Phase), "unknown"))
	p.Row("Import:", r.attempt(p))
	waitingFor(p, r.Reconciled, waits)
	p.Row("Used by:", r.users())
	p.Row("Needed by:", cli.SomeOf(r.Waiting, shownMembers))
	p.Row("New users:", r.admits())
	p.Row("When unused:", r.unused(p))
	if r.Terminating && r.Status.References != nil && r.Status.References.Count > 0 {
		p.Row("Next step:", "to free the image, delete the disks that use it, or their machines; to list them: "+commands.Line("kubectl", "get", "virtualdisks",
			"--all-namespaces", "--field-selector", v1alpha1.FieldUsedDiskImage+"="+r.UID))
	}
}

// attempt describes the current or last attempt to import the image.
func (r *imageReport) attempt(p *cli.Page) string {
	a := r.Status.Attempt
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("attempt %d, started %s ago", a.Number, p.Ago(a.StartedAt.Time))
	if a.Progress != "" {
		text += ", " + a.Progress
	}
	if a.RetryAt != nil && !r.Terminating {
		text += fmt.Sprintf(" (failed; the next attempt starts %s)", p.Ahead(a.RetryAt.Time))
	}
	return text
}

// users lists the users in the namespace, and counts all disks.
func (r *imageReport) users() string {
	refs := r.Status.References
	if refs == nil || refs.Count == 0 {
		return "none"
	}
	var names []string
	for _, user := range refs.Users {
		short := "svd/"
		if user.Kind == cli.MachineKind {
			short = "svm/"
		}
		names = append(names, short+user.Name)
	}
	text := fmt.Sprintf("disks: %d", refs.Count)
	if refs.Elsewhere > 0 {
		text += fmt.Sprintf(" (in other namespaces: %d)", refs.Elsewhere)
	}
	if len(names) > 0 {
		text += "; " + cli.SomeOf(names, shownMembers)
	}
	return text
}

// admits describes the namespaces whose disks may begin to use the image.
func (r *imageReport) admits() string {
	switch {
	case r.Terminating:
		return "none: it is being deleted"
	case r.Spec.Retired:
		return "none: spec.retired is true"
	}
	switch r.Spec.AllowedNamespaces.From {
	case v1alpha1.VMDiskImageFromAll:
		return "all namespaces"
	case v1alpha1.VMDiskImageFromSelector:
		return "its namespace, and those that spec.allowedNamespaces.selector selects"
	}
	return "its namespace"
}

// unused describes what happens to the image once no disk uses it.
func (r *imageReport) unused(p *cli.Page) string {
	if r.Terminating {
		return "deleted"
	}
	if r.Spec.DeletionPolicy != v1alpha1.VMDiskImageDeleteAfterUnreferenced {
		return "kept"
	}
	ttl := v1alpha1.DefaultTTLAfterUnreferenced
	if r.Spec.TTLAfterUnreferenced != nil {
		ttl = r.Spec.TTLAfterUnreferenced.Duration
	}
	text := fmt.Sprintf("deleted after %v", ttl)
	if since := r.Status.UnreferencedSince; since != nil {
		text += fmt.Sprintf("; unused for %s, due %s", p.Ago(since.Time), p.Ahead(since.Add(ttl)))
	}
	return text
}
