package virtualmachine

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// referring has the VirtualMachine be made from VSphereTemplate ubuntu.
func referring(failureDomain string) func(*v1alpha1.VirtualMachine) {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
			ServerRef: v1alpha1.VSphereServerReference{Name: "vc"},
			Clone: &v1alpha1.VSphereClone{
				Template: v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: "ubuntu", FailureDomain: failureDomain}},
				Folder:   "/dc/vm", ResourcePool: "/dc/host/c", Datastore: "/dc/datastore/d", Networks: []v1alpha1.InventoryPath{"/dc/network/n"},
			},
		}}
	}
}

// ubuntu is a VSphereTemplate with these failure domains that was not created yet.
func (f *fixture) ubuntu(server string, domains ...string) *v1alpha1.VSphereTemplate {
	t := &v1alpha1.VSphereTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "ubuntu"}, Spec: v1alpha1.VSphereTemplateSpec{
		ServerRef: v1alpha1.VSphereServerReference{Name: server}, Name: "ubuntu-24.04", Release: "1",
		Source: v1alpha1.VSphereTemplateSource{URL: "https://images.example.org/ubuntu.ova", SHA256: strings.Repeat("0", 64)},
	}}
	for _, name := range domains {
		t.Spec.FailureDomains = append(t.Spec.FailureDomains, v1alpha1.VSphereFailureDomain{
			Name: name, Folder: v1alpha1.InventoryPath("/dc/vm/" + name), ResourcePool: "/dc/host/c", Datastore: "/dc/datastore/d", Network: "/dc/network/n",
		})
	}
	return t
}

// released has the failure domains show a release.
func (f *fixture) released(t *v1alpha1.VSphereTemplate, release string) {
	f.Helper()
	t.Status.FailureDomains = nil
	for _, d := range t.Spec.FailureDomains {
		t.Status.FailureDomains = append(t.Status.FailureDomains, v1alpha1.VSphereFailureDomainStatus{
			Name: d.Name, Release: release, InstanceUUID: "uuid-2", Imported: []string{"uuid-1", "uuid-2"},
		})
	}
	f.Must(f.api.Status().Update(f.Context(), t))
}

// A machine is made from the template that its reference means, once that has a release.
func TestMadeFromATemplate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var told []*runtime.Template
	rt := runtime.NewClient(f.world.Client("us"), func(ctx context.Context, call *runtime.Call, next func(context.Context) error) error {
		if call.Verb == runtime.VerbEnsure {
			told = append(told, call.Machine.Template)
		}
		return next(ctx)
	})
	f.vms.Runtimes = func(context.Context, *v1alpha1.VirtualMachine) (*runtime.Client, error) { return rt, nil }
	template := f.ubuntu("vc", "a", "b")
	f.Must(f.api.Create(t.Context(), template))
	f.machine(v1alpha1.RunPolicyManual, referring("b"))
	f.settle()
	f.is("Pending False/Provisioning")
	want := "the machine is being created: waiting for the first release of VSphereTemplate ubuntu in failure domain b: for the cause, run `kubectl sallyport why svst ubuntu --namespace " +
		f.namespace + "`"
	if diff := cmp.Diff(want, f.message()); diff != "" || told != nil {
		t.Errorf("the runtime was told %v, (-want +got):\n%s", told, diff)
	}
	f.released(template, "1")
	f.settle()
	f.is("Stopped True/AsWanted")
	if diff := cmp.Diff([]*runtime.Template{{Name: "ubuntu", UID: template.UID, Path: "/dc/vm/b/ubuntu-24.04", Imported: []string{"uuid-1", "uuid-2"}}}, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is wrong with a reference is in the condition, and is tried again.
func TestMadeFromNoTemplate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		domain string
		exists func(f *fixture) *v1alpha1.VSphereTemplate
		going  bool
		want   string
	}{
		"none":                   {"", func(*fixture) *v1alpha1.VSphereTemplate { return nil }, false, "does not exist"},
		"another server":         {"", func(f *fixture) *v1alpha1.VSphereTemplate { return f.ubuntu("vc-2", "a") }, false, "is on VSphereServer vc-2, but the VirtualMachine is on VSphereServer vc"},
		"no such failure domain": {"c", func(f *fixture) *v1alpha1.VSphereTemplate { return f.ubuntu("vc", "a", "b") }, false, "has no failure domain c"},
		"several failure domains": {"", func(f *fixture) *v1alpha1.VSphereTemplate { return f.ubuntu("vc", "a", "b") }, false,
			"has several failure domains: recreate the VirtualMachine with failureDomain set"},
		"going": {"", func(f *fixture) *v1alpha1.VSphereTemplate { return f.ubuntu("vc", "a") }, true, "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if template := tc.exists(f); template != nil {
				template.Finalizers = []string{v1alpha1.VSphereTemplateFinalizer}
				f.Must(f.api.Create(t.Context(), template))
				f.released(template, "1")
				if tc.going {
					f.Must(f.api.Delete(t.Context(), template))
				}
			}
			f.machine(v1alpha1.RunPolicyManual, referring(tc.domain))
			f.settle()
			f.is("Pending False/InvalidSpec")
			if diff := cmp.Diff("spec.runtime.vsphere.clone.template.templateRef: VSphereTemplate ubuntu "+tc.want, f.message()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := f.pass(); err == nil {
				t.Error("it is not tried again")
			}
		})
	}
}

// A machine is found by its VSphereTemplate until it is made, and looked at when that has another release.
func TestWaitsForATemplate(t *testing.T) {
	vm := &v1alpha1.VirtualMachine{}
	if keys := templateKeys(vm); keys != nil {
		t.Errorf("without a reference: %v", keys)
	}
	referring("")(vm)
	if diff := cmp.Diff([]string{"ubuntu"}, templateKeys(vm)); diff != "" {
		t.Error(diff)
	}
	vm.Status.InstanceID = "made"
	if keys := templateKeys(vm); keys != nil {
		t.Errorf("made: %v", keys)
	}
	before := &v1alpha1.VSphereTemplate{Status: v1alpha1.VSphereTemplateStatus{FailureDomains: []v1alpha1.VSphereFailureDomainStatus{{Name: "a"}}}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.VSphereTemplate)
		want   bool
	}{
		"progress": {func(t *v1alpha1.VSphereTemplate) { t.Status.FailureDomains[0].Progress = new(int32(5)) }, false},
		"release":  {func(t *v1alpha1.VSphereTemplate) { t.Status.FailureDomains[0].Release = "1" }, true},
		"spec":     {func(t *v1alpha1.VSphereTemplate) { t.Generation++ }, true},
	} {
		after := before.DeepCopy()
		tc.change(after)
		if got := templateChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: looked at %t, want %t", name, got, tc.want)
		}
	}
}
