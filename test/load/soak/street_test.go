package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/double/vcsim"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// street is a cluster with two namespaces, each with a vCenter of its own, of which one hangs.
type street struct {
	step.T
	*pair
	admin    client.Client
	ordinary *ordinary
}

func newStreet(t *testing.T) *street {
	t.Helper()
	s := &street{T: step.T{T: t}, pair: sharedPair(t)}
	var err error
	s.admin, err = install.Client(s.plane.Config)
	s.Must(err)
	v, err := vcsim.Start(vcsim.Options{Step: 10 * time.Millisecond})
	s.Must(err)
	t.Cleanup(v.Close)
	_, err = v.AddMachine("web")
	s.Must(err)
	password, _ := v.User().Password()
	for name, spec := range map[string]v1alpha1.VSphereServerSpec{
		"ordinary": {URL: v.URL(), Trust: v1alpha1.VSphereTrust{CABundle: string(v.CABundle())}},
		"hostile":  {URL: hungServer(t), Trust: v1alpha1.VSphereTrust{CABundle: string(v.CABundle())}},
	} {
		spec.CredentialsSecretRef.Name = name + "-login"
		spec.Tenants = []v1alpha1.VSphereTenant{{
			Name: "team", Namespaces: v1alpha1.TenantNamespaces{Names: []string{name}}, Folders: []v1alpha1.InventoryPath{"/DC0/vm"}, Adopt: true,
			Templates: []v1alpha1.InventoryPath{"/DC0/vm"}, ResourcePools: []v1alpha1.InventoryPath{"/DC0/host"},
			Datastores: []v1alpha1.InventoryPath{"/DC0/datastore"}, Networks: []v1alpha1.InventoryPath{"/DC0/network"},
		}}
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: spec.CredentialsSecretRef.Name},
				StringData: map[string]string{"username": v.User().Username(), "password": password},
			},
			&v1alpha1.VSphereServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		} {
			s.Must(s.admin.Create(t.Context(), o))
		}
	}
	s.ordinary = s.newOrdinary()
	return s
}

// client gives a client of somebody who may edit a namespace.
func (s *street) client(user, namespace string) client.Client {
	s.Helper()
	config, err := s.plane.UserConfig(user)
	s.Must(err)
	c, err := install.Client(config)
	s.Must(err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edit"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Verbs: []string{"*"}, Resources: []string{
			"virtualmachines", "virtualmachineoperations", "virtualmachinepools", "virtualmachinepools/scale", "virtualdisks",
		}},
		{APIGroups: []string{"", "apps"}, Verbs: []string{"*"}, Resources: []string{"configmaps", "deployments", "deployments/scale"}},
	}}
	s.Must(s.admin.Create(s.Context(), role))
	s.Must(s.admin.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
	return c
}

// ordinary is a namespace with one machine and one Deployment, of somebody who does what is done every day.
type ordinary struct {
	step.T
	client.Client
	vm *v1alpha1.VirtualMachine
}

func (s *street) newOrdinary() *ordinary {
	s.Helper()
	o := &ordinary{T: s.T, Client: s.client("ann", "ordinary")}
	s.Must(o.Create(s.Context(), deploymentOf("ordinary")))
	o.vm = &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ordinary", Name: "web"}}
	o.vm.Spec.RunPolicy = v1alpha1.RunPolicyManual
	o.vm.Spec.Runtime.VSphere = &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "ordinary"}, InventoryPath: "/DC0/vm/web",
	}
	var last error
	s.Until("the policies know the VSphereServer", func() (string, bool) {
		last = o.Create(s.Context(), o.vm)
		return fmt.Sprint(last), last == nil
	})
	s.Until("the machine is adopted", func() (string, bool) {
		s.Must(o.Get(s.Context(), client.ObjectKeyFromObject(o.vm), o.vm))
		return fmt.Sprintf("%+v", o.vm.Status), meta.IsStatusConditionTrue(o.vm.Status.Conditions, string(v1alpha1.ConditionReady))
	})
	s.Until("scale-downs are judged", func() (string, bool) {
		limited := deploymentOf("ordinary")
		limited.Name, limited.Annotations = "limited", map[string]string{"sallyport.dev/min-replicas": "x"}
		last = o.Create(s.Context(), limited, client.DryRunAll)
		return fmt.Sprint(last), last != nil && strings.Contains(last.Error(), "scaling-guard")
	})
	return o
}

// rounds does everything so many times, and gives how long each thing took.
func (o *ordinary) rounds(n int) map[string][]time.Duration {
	o.Helper()
	took := map[string][]time.Duration{}
	for range n {
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{control, o.another},
			{"a machine that is admitted", o.admitted},
			{"an operation that is denied", o.denied},
			{"a scale-down that takes live facts", func() error { return scaleDown(o.Context(), o, "ordinary") }},
			{"a change that is reconciled", o.changed},
			{"a start", func() error { return o.operate(v1alpha1.OperationStart) }},
			{"a stop", func() error { return o.operate(v1alpha1.OperationStop) }},
		} {
			began := time.Now()
			if err := step.do(); err != nil {
				o.Errorf("%s: %v", step.what, err)
			}
			took[step.what] = append(took[step.what], time.Since(began))
		}
	}
	return took
}

// another creates an object about which no policy is asked.
func (o *ordinary) another() error {
	return o.Create(o.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ordinary", Name: "another"}}, client.DryRunAll)
}

func (o *ordinary) admitted() error {
	vm := o.vm.DeepCopy()
	vm.Name, vm.ResourceVersion, vm.UID = "another", "", ""
	vm.Spec.Runtime.VSphere.InventoryPath = "/DC0/vm/another"
	return o.Create(o.Context(), vm, client.DryRunAll)
}

func (o *ordinary) denied() error {
	err := o.Create(o.Context(), &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ordinary", Name: "nobody"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: v1alpha1.OperationStart, VirtualMachineName: "nobody"},
	}, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "VirtualMachineNotFound") {
		return fmt.Errorf("want VirtualMachineNotFound, got: %w", err)
	}
	return nil
}

// changed changes the machine's spec and waits until that is seen.
func (o *ordinary) changed() error {
	vm := o.vm.DeepCopy()
	patch := fmt.Sprintf(`{"spec": {"terminationGracePeriodSeconds": %d}}`, 10+o.vm.Generation%100)
	if err := o.Patch(o.Context(), vm, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return err
	}
	o.vm = vm
	return step.Await(o.Context(), func(ctx context.Context) (bool, error) {
		err := o.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return vm.Status.ObservedGeneration == vm.Generation, err
	})
}

func (o *ordinary) operate(of v1alpha1.OperationType) error {
	operation := &v1alpha1.VirtualMachineOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ordinary", GenerateName: "web-"},
		Spec:       v1alpha1.VirtualMachineOperationSpec{Type: of, VirtualMachineName: "web"},
	}
	if err := o.Create(o.Context(), operation); err != nil {
		return err
	}
	err := step.Await(o.Context(), func(ctx context.Context) (bool, error) {
		err := o.Get(ctx, client.ObjectKeyFromObject(operation), operation)
		return operation.Finished(), err
	})
	if err == nil && operation.Status.Phase != v1alpha1.OperationCompleted {
		err = fmt.Errorf("it ended as %+v", operation.Status)
	}
	return err
}

// control is what the API server does without Sallyport: how much longer that takes is what the processors are short of.
const control = "a ConfigMap, for comparison"

// slower is how many times as long something may take beside the hostile namespace, at the median, beyond what the control does. A line
// for all made that a hundred times.
const slower = 5

// compare holds how long things took beside the hostile namespace against how long they took without.
func (s *street) compare(alone, beside map[string][]time.Duration) {
	s.Helper()
	median := func(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }
	ratio := func(what string) float64 { return float64(median(beside[what])) / float64(median(alone[what])) }
	for _, what := range slices.Sorted(maps.Keys(alone)) {
		s.Logf("%s: %v alone, %v beside the hostile namespace: %.1f times as long, %.1f times the control's (the slowest %v)", what,
			median(alone[what]).Round(time.Millisecond), median(beside[what]).Round(time.Millisecond), ratio(what),
			ratio(what)/ratio(control), slices.Max(beside[what]).Round(time.Millisecond))
		if ratio(what) > slower*max(1, ratio(control)) {
			s.Errorf("%s took too long beside the hostile namespace", what)
		}
	}
	for _, m := range s.replicas {
		select {
		case <-m.Ended():
			s.Errorf("%s has ended", m.Name)
		default:
		}
	}
}
