package virtualmachine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// cloudInit reads what the guest of a machine that is to be made is given: the Secret that its spec names, by name, in its own namespace.
// Whoever created the VirtualMachine was allowed to read it. What is wrong with it names the field, and nothing of what is in it.
func (r *Reconciler) cloudInit(ctx context.Context, vm *v1alpha1.VirtualMachine) (given runtime.CloudInit, err error) {
	v := vm.Spec.Runtime.VSphere
	if v == nil || v.Clone == nil || v.Clone.CloudInit == nil {
		return given, nil
	}
	name := v.Clone.CloudInit.SecretRef.Name
	wrong := func(cause error, what string) error {
		return runtime.NewInvalidSpec(cause, "spec.runtime.vsphere.clone.cloudInit.secretRef: Secret %s %s", name, what)
	}
	var secret corev1.Secret
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return given, wrong(err, "does not exist")
	case apierrors.IsForbidden(err):
		return given, wrong(err,
			"cannot be read: an administrator must grant Sallyport access to it in this namespace (docs/vsphere.md, User data)")
	case err != nil:
		return given, runtime.NewUnavailable(err, "Secret %s could not be read", name)
	}
	given.UserData = runtime.Secret(secret.Data[v1alpha1.CloudInitUserDataKey])
	given.MetaData = runtime.Secret(secret.Data[v1alpha1.CloudInitMetaDataKey])
	if given.UserData == "" && given.MetaData == "" {
		return given, wrong(nil, "has neither "+v1alpha1.CloudInitUserDataKey+" nor "+v1alpha1.CloudInitMetaDataKey)
	}
	return given, nil
}
