//go:build kubevirt

package kubevirt

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// rights has a user who may write VirtualMachines of Sallyport adopt a machine of KubeVirt: at first without, then with a right on it. To
// create one, the user has no right.
func (s *site) rights(namespace string) {
	theirs := foreignVM(namespace, "theirs")
	s.Must(s.Create(s.Context(), theirs))
	s.grant(namespace, "machines", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"virtualmachines"}, Verbs: []string{"create"}})
	config, err := s.Plane.UserConfig("bob")
	s.Must(err)
	bob, err := client.New(config, client.Options{Scheme: s.Scheme})
	s.Must(err)
	adopts := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}}
	adopts.Spec.Runtime.KubeVirt = &v1alpha1.KubeVirtRuntime{}
	create := func(vm *v1alpha1.VirtualMachine) func() error {
		return func() error { return bob.Create(s.Context(), vm.DeepCopy()) }
	}
	const denial = "machines-access/KubeVirtNotAllowed"
	s.denied(denial, create(adopts))
	s.grant(namespace, "update-theirs", rbacv1.PolicyRule{
		APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, ResourceNames: []string{"theirs"}, Verbs: []string{"update"},
	})
	s.Until("the user may adopt the machine", func() (string, bool) {
		err := create(adopts)()
		return fmt.Sprint(err), err == nil
	})
	s.shows(adopts, v1alpha1.VirtualMachineStopped)
	made := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "made"}, Spec: *machine(namespace, "made", true).Spec}
	s.denied(denial, create(made))
	s.Must(s.Delete(s.Context(), adopts))
	s.gone(adopts)
}

// grant gives user bob a right in a namespace.
func (s *site) grant(namespace, name string, rule rbacv1.PolicyRule) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	s.Must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}))
	s.Must(s.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
	}))
}

// templated has a template reach KubeVirt, and what KubeVirt rejects of others reach condition Ready.
func (s *site) templated(namespace string) {
	with := func(name, template string) *v1alpha1.VirtualMachine {
		spec := machine(namespace, name, true).Spec
		spec.RunPolicy = v1alpha1.RunPolicyManual
		spec.Runtime.KubeVirt.Create.Template = &kruntime.RawExtension{Raw: []byte(template)}
		return s.virtualMachine(namespace, name, spec)
	}
	vm := with("templated", `{"spec": {"evictionStrategy": "None", "tolerations": [{"key": "dedicated", "operator": "Exists"}]}}`)
	s.shows(vm, v1alpha1.VirtualMachineStopped)
	made := &virtv1.VirtualMachine{}
	s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), made))
	if spec := made.Spec.Template.Spec; spec.EvictionStrategy == nil || *spec.EvictionStrategy != virtv1.EvictionStrategyNone || len(spec.Tolerations) != 1 {
		s.Errorf("created with %+v", spec)
	}
	s.Must(s.Delete(s.Context(), vm))
	s.gone(vm)
	for name, tc := range map[string]struct{ template, message string }{
		"unknown":  {`{"spec": {"hostDevice": []}}`, `unknown field "spec.template.spec.hostDevice"`},
		"rejected": {`{"spec": {"evictionStrategy": "Sometimes"}}`, "evictionStrategy"},
		"ours":     {`{"spec": {"domain": {"memory": {"guest": "1Gi"}}}}`, "spec.domain.memory.guest: Sallyport sets"},
	} {
		vm := with(name, tc.template)
		s.Until("condition Ready says why template "+name+" is rejected", func() (string, bool) {
			s.Must(s.Get(s.Context(), client.ObjectKeyFromObject(vm), vm))
			ready := v1alpha1.ConditionReady.In(vm.Status.Conditions)
			return fmt.Sprintf("%+v", vm.Status), ready != nil && ready.Reason == string(v1alpha1.ReasonInvalidSpec) && strings.Contains(ready.Message, tc.message)
		})
		s.Must(s.Delete(s.Context(), vm))
		s.gone(vm)
	}
}
