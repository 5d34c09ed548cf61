package virtualmachine

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// byTemplate is the index of VirtualMachines whose machines are not made yet by the VSphereTemplates that they are made from.
const byTemplate = "template"

func templateKeys(o client.Object) []string {
	vm, is := o.(*v1alpha1.VirtualMachine)
	if !is || vm.Status.InstanceID != "" || vm.Spec.TemplateRef() == nil {
		return nil
	}
	return []string{vm.Spec.TemplateRef().Name}
}

// template finds the template that a machine is to be made from, if its spec names a VSphereTemplate. One that has no release yet is waited
// for; anything else that is wrong with it names the field.
func (r *Reconciler) template(ctx context.Context, vm *v1alpha1.VirtualMachine) (found *runtime.Template, waits string, err error) {
	ref := vm.Spec.TemplateRef()
	if ref == nil {
		return nil, "", nil
	}
	wrong := func(cause error, format string, args ...any) error {
		return runtime.NewInvalidSpec(cause, "spec.runtime.vsphere.clone.template.templateRef: VSphereTemplate %s %s", ref.Name, fmt.Sprintf(format, args...))
	}
	t := &v1alpha1.VSphereTemplate{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: ref.Name}, t); {
	case apierrors.IsNotFound(err):
		return nil, "", wrong(err, "does not exist")
	case err != nil:
		return nil, "", runtime.NewUnavailable(err, "VSphereTemplate %s could not be read", ref.Name)
	}
	domain := t.Spec.Meant(ref.FailureDomain)
	switch server := vm.Spec.Runtime.VSphere.ServerRef.Name; {
	case !t.DeletionTimestamp.IsZero():
		return nil, "", wrong(nil, "is being deleted")
	case t.Spec.ServerRef.Name != server:
		return nil, "", wrong(nil, "is on VSphereServer %s, but the VirtualMachine is on VSphereServer %s", t.Spec.ServerRef.Name, server)
	case domain == nil && ref.FailureDomain == "":
		return nil, "", wrong(nil, "has several failure domains: recreate the VirtualMachine with failureDomain set")
	case domain == nil:
		return nil, "", wrong(nil, "has no failure domain %s", ref.FailureDomain)
	case t.Status.ReleaseIn(domain.Name) == "":
		return nil, fmt.Sprintf("waiting for the first release of VSphereTemplate %s in failure domain %s: for the cause, "+
			"run `kubectl sallyport why svst %s --namespace %s`", ref.Name, domain.Name, ref.Name, vm.Namespace), nil
	}
	return &runtime.Template{Name: t.Name, UID: t.UID, Former: t.Status.FormerIn(domain.Name), Path: domain.Folder + "/" + v1alpha1.InventoryPath(t.Spec.Name)}, "", nil
}

// templateChanged drops what changes nothing for a machine that waits for a template, above all how much of an import is done.
var templateChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*v1alpha1.VSphereTemplate)
	now, is := e.ObjectNew.(*v1alpha1.VSphereTemplate)
	return was && is && (before.Generation != now.Generation || !slices.Equal(releases(before), releases(now)))
}}

// releases are those that the failure domains have.
func releases(t *v1alpha1.VSphereTemplate) (all []string) {
	for i := range t.Status.FailureDomains {
		all = append(all, t.Status.FailureDomains[i].Name, t.Status.FailureDomains[i].Release)
	}
	return all
}

// ofTemplate gives the machines that are to be made from a template, by the cache.
func (r *Reconciler) ofTemplate(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var list v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{byTemplate: o.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "finding the VirtualMachines of a template", "VSphereTemplate", o.GetName())
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
