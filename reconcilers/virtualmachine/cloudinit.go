package virtualmachine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// cloudInit reads the user data for a machine that is about to be created from the Secret that its spec names, in its
// own namespace. The creator of the VirtualMachine was authorized to read it. Errors name the field and reveal
// nothing of the content.
func (r *Reconciler) cloudInit(ctx context.Context, vm *v1alpha1.VirtualMachine) (found runtime.CloudInit, err error) {
	v := vm.Spec.Runtime.VSphere
	if v == nil || v.Clone == nil || v.Clone.CloudInit == nil {
		return found, nil
	}
	name := v.Clone.CloudInit.SecretRef.Name
	invalid := func(cause error, what string) error {
		return runtime.NewInvalidSpec(cause, "spec.runtime.vsphere.clone.cloudInit.secretRef: Secret %s %s", name, what)
	}
	var secret corev1.Secret
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return found, invalid(err, "does not exist")
	case apierrors.IsForbidden(err):
		return found, invalid(err,
			"cannot be read: an administrator must grant Sallyport access to it in this namespace (docs/vsphere.md, User data)")
	case err != nil:
		return found, runtime.NewUnavailable(err, "Secret %s could not be read", name)
	}
	found.UserData = runtime.Secret(secret.Data[v1alpha1.CloudInitUserDataKey])
	found.MetaData = runtime.Secret(secret.Data[v1alpha1.CloudInitMetaDataKey])
	if found.UserData == "" && found.MetaData == "" {
		return found, invalid(nil, "has neither "+v1alpha1.CloudInitUserDataKey+" nor "+v1alpha1.CloudInitMetaDataKey)
	}
	return found, nil
}
