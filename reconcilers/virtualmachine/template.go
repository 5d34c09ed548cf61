package virtualmachine

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/watch"
)

// byTemplate indexes VirtualMachines without an instance by the VSphereTemplate they are created from.
const byTemplate = "template"

func templateKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Status.InstanceID != "" || vm.Spec.TemplateRef() == nil {
		return nil
	}
	return []string{vm.Spec.TemplateRef().Name}
}

// findTemplate returns the template that a machine is created from, if its spec names a VSphereTemplate. A template
// without a release is waited for; any other problem is an error that names the field.
func (r *Reconciler) findTemplate(ctx context.Context, vm *v1alpha1.VirtualMachine) (found *runtime.Template, waitMessage string, err error) {
	ref := vm.Spec.TemplateRef()
	if ref == nil {
		return nil, "", nil
	}
	invalid := func(cause error, format string, args ...any) error {
		return runtime.NewInvalidSpec(cause, "spec.runtime.vsphere.clone.template.templateRef: VSphereTemplate %s %s", ref.Name, fmt.Sprintf(format, args...))
	}
	t := &v1alpha1.VSphereTemplate{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: ref.Name}, t); {
	case apierrors.IsNotFound(err):
		return nil, "", invalid(err, "does not exist")
	case err != nil:
		return nil, "", runtime.NewUnavailable(err, "VSphereTemplate %s could not be read", ref.Name)
	}
	domain := t.Spec.Meant(ref.FailureDomain)
	switch server := vm.Spec.Runtime.VSphere.ServerRef.Name; {
	case !t.DeletionTimestamp.IsZero():
		return nil, "", invalid(nil, "is being deleted")
	case t.Spec.ServerRef.Name != server:
		return nil, "", invalid(nil, "is on VSphereServer %s, but the VirtualMachine is on VSphereServer %s", t.Spec.ServerRef.Name, server)
	case domain == nil && ref.FailureDomain == "":
		return nil, "", invalid(nil, "has several failure domains: recreate the VirtualMachine with failureDomain set")
	case domain == nil:
		return nil, "", invalid(nil, "has no failure domain %s", ref.FailureDomain)
	case t.Status.ReleaseIn(domain.Name) == "":
		return nil, fmt.Sprintf("waiting for the first release of VSphereTemplate %s in failure domain %s: for the cause, "+
			"run `%s`", ref.Name, domain.Name, commands.Line("kubectl", "sallyport", "why", "svst", ref.Name, "--namespace", vm.Namespace)), nil
	}
	return &runtime.Template{Name: t.Name, UID: t.UID, Former: t.Status.FormerIn(domain.Name), Path: domain.Folder + "/" + v1alpha1.InventoryPath(t.Spec.Name),
		Imported: t.Status.ImportedIn(domain.Name)}, "", nil
}

// templateChanged drops updates that do not matter to a machine that waits for a template, above all import progress.
var templateChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VSphereTemplate)
	now, is := e.ObjectNew.(*v1alpha1.VSphereTemplate)
	return was && is && (before.Generation != now.Generation || !slices.Equal(releases(before), releases(now)))
}}

func releases(t *v1alpha1.VSphereTemplate) (all []string) {
	for i := range t.Status.FailureDomains {
		all = append(all, t.Status.FailureDomains[i].Name, t.Status.FailureDomains[i].Release)
	}
	return all
}

// machinesOfTemplate returns requests for the machines to be created from a template, from the cache.
func (r *Reconciler) machinesOfTemplate(ctx context.Context, o client.Object) []reconcile.Request {
	return watch.Requests(ctx, r.Client, &v1alpha1.VirtualMachineList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{byTemplate: o.GetName()})
}
