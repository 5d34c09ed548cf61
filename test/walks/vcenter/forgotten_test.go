//go:build !race

package vcenter

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/env/install"
)

// editor is a client of a user who may edit the namespace.
func (s *site) editor(name string) client.Client {
	s.Helper()
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sallyport-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	config := rest.CopyConfig(stack.Plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := install.Client(config)
	s.Must(err)
	return c
}

// A machine that is being cloned counts in the quota and is not forgotten, whatever its owner deletes.
func TestMachineForgottenDuringClone(t *testing.T) {
	t.Parallel()
	s := maker(t)
	server := &v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.Must(stack.Client.Get(s.Context(), client.ObjectKeyFromObject(server), server))
	update(s, server, func(server *v1alpha1.VSphereServer) {
		server.Spec.Tenants[0].Quota = &v1alpha1.VSphereQuota{Machines: new(int32(1))}
	})
	alice := s.editor(s.name + "-alice")
	release := s.vcenter.Hold("/DC0/vm/template", runtime.TaskCreate)
	vm := s.made()
	s.patiently(func() error {
		err := alice.Create(s.Context(), vm)
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") { // her role is a moment old
			return fmt.Errorf("policy evaluation failed: %w", err)
		}
		return err
	})
	place := s.place(vm)
	s.until("it is being cloned", func() string { return fmt.Sprint(s.vcenter.Making(place)) }, "true")
	s.Must(alice.Delete(s.Context(), vm))
	err := alice.Patch(s.Context(), vm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "machines-abandon/FinalizerRequired") {
		t.Errorf("she removes the finalizer: %v", err)
	}
	other := s.made()
	other.Name = "other"
	s.until("a second machine exceeds the quota", func() string { // the cache of the quota may be a moment old
		err := alice.Create(s.Context(), other, client.DryRunAll)
		return fmt.Sprint(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "servers-quota"))
	}, "true")
	release()
	s.until("what was cloned is gone with it", func() string {
		err := stack.Client.Get(s.Context(), client.ObjectKeyFromObject(vm), vm)
		return fmt.Sprint(apierrors.IsNotFound(err) && s.vcenter.State(place).InstanceUUID == "")
	}, "true")
}
