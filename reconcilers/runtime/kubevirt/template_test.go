package kubevirt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// templated returns a machine with a template.
func templated(template string) runtime.Machine {
	return runtime.Machine{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, UID: "uid", Labels: map[string]string{"app": "web"},
		Spec: &v1alpha1.VirtualMachineSpec{
			CPU: new(int32(2)), Memory: new(resource.MustParse("64Mi")), NodeName: "node-1", NodeSelector: map[string]v1alpha1.LabelValue{"zone": "a"},
			Runtime: v1alpha1.VirtualMachineRuntime{KubeVirt: &v1alpha1.KubeVirtRuntime{Create: &v1alpha1.KubeVirtMachine{
				Disks:    []v1alpha1.KubeVirtDisk{{Name: "root", DataVolume: "root"}},
				Networks: []v1alpha1.KubeVirtNetwork{{Name: "default"}},
				Template: &kruntime.RawExtension{Raw: []byte(template)},
			}}},
		},
	}
}

func TestTemplate(t *testing.T) {
	r, _ := newRuntime(t)
	m := templated(`{
		"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
		"spec": {
			"evictionStrategy": "None", "terminationGracePeriodSeconds": 3600,
			"tolerations": [{"key": "dedicated", "operator": "Exists"}],
			"nodeSelector": {"disk": "ssd", "zone": "b"},
			"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}},
			"domain": {
				"cpu": {"model": "host-model"}, "memory": {"hugepages": {"pageSize": "2Mi"}},
				"devices": {
					"disks": [{"name": "extra", "disk": {}}, {"name": "root", "disk": {"bus": "sata"}}],
					"interfaces": [{"name": "default", "model": "e1000"}],
					"hostDevices": [{"name": "gpu", "deviceName": "example.com/gpu"}]
				}
			},
			"volumes": [{"name": "extra", "emptyDisk": {"capacity": "1Gi"}}]
		}
	}`)
	if id, err := r.Ensure(t.Context(), m); err != nil || id != "web" {
		t.Fatalf("got %q, %v", id, err)
	}
	check := func(nodes int) {
		t.Helper()
		vm := &virtv1.VirtualMachine{}
		if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, vm); err != nil {
			t.Fatal(err)
		}
		spec, meta := vm.Spec.Template.Spec, vm.Spec.Template.ObjectMeta
		if diff := cmp.Diff(map[string]string{"app": "web", "team": "a"}, meta.Labels); diff != "" || meta.Annotations["note"] != "b" {
			t.Errorf("labels (-want +got):\n%s, annotations %v", diff, meta.Annotations)
		}
		if spec.EvictionStrategy == nil || *spec.EvictionStrategy != virtv1.EvictionStrategyNone || len(spec.Tolerations) != 1 {
			t.Errorf("got %+v", spec)
		}
		if diff := cmp.Diff(map[string]string{"disk": "ssd", "zone": "a"}, spec.NodeSelector); diff != "" {
			t.Errorf("node selector (-want +got):\n%s", diff)
		}
		if got := len(spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution); got != nodes {
			t.Errorf("%d preferred nodes, want %d", got, nodes)
		}
		if d := spec.Domain; d.CPU.Model != "host-model" || d.CPU.Sockets != 2 || d.Memory.Hugepages == nil || d.Memory.Guest.String() != "64Mi" {
			t.Errorf("size: %+v %+v", d.CPU, d.Memory)
		}
		devices := spec.Domain.Devices
		if len(devices.HostDevices) != 1 || len(devices.Disks) != 2 || devices.Disks[0].Name != "root" || *devices.Disks[0].BootOrder != 1 || devices.Disks[0].Disk.Bus != "sata" {
			t.Errorf("devices: %+v", devices)
		}
		if v := spec.Volumes; len(v) != 2 || v[0].DataVolume == nil || v[1].EmptyDisk == nil {
			t.Errorf("volumes: %+v", v)
		}
		if i := devices.Interfaces; len(i) != 1 || i[0].Model != "e1000" || i[0].Masquerade == nil {
			t.Errorf("interfaces: %+v", i)
		}
	}
	check(2)
	m.Spec.NodeName = ""
	if err := r.PowerOn(t.Context(), m); err != nil { // the template is the same then, and the machine has no preferred node
		t.Fatal(err)
	}
	check(1)
}

// A template whose affinity says nothing about nodes has the node of the spec added.
func TestTemplateWithOtherAffinity(t *testing.T) {
	r, _ := newRuntime(t)
	m := templated(`{"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}}`)
	if _, err := r.Ensure(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "web"}, vm); err != nil {
		t.Fatal(err)
	}
	if a := vm.Spec.Template.Spec.Affinity; a.PodAntiAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("got %+v", a)
	}
	if v := vm.Spec.Template.Spec.Domain.Memory; v == nil || v.Guest.Cmp(resource.MustParse("64Mi")) != 0 {
		t.Errorf("memory: %+v", v)
	}
}

func TestTemplateIsRejected(t *testing.T) {
	const field = "spec.runtime.kubevirt.create.template"
	for template, want := range map[string]string{
		`{"spec": {"terminationGracePeriodSeconds": 5}}`:                                   field + ".spec.terminationGracePeriodSeconds: Sallyport sets this field to 3600",
		`{"spec": {"domain": {"memory": {"guest": "1Gi"}}}}`:                               field + ".spec.domain.memory.guest: Sallyport sets this field to 64Mi",
		`{"spec": {"domain": {"devices": {"disks": [{"name": "root", "bootOrder": 7}]}}}}`: field + ".spec.domain.devices.disks[root].bootOrder: Sallyport sets",
		`{"spec": {"volumes": [{"name": "root", "dataVolume": {"name": "other"}}]}}`:       field + ".spec.volumes[root].dataVolume.name: Sallyport sets this field to root",
		`{"metadata": {"labels": {"app": "other"}}}`:                                       field + ".metadata.labels.app: Sallyport sets this field to web",
		`{"metadata": {"labels": 7}}`:                                                      field + ".metadata.labels: Sallyport sets",
		`{"metadata": {"name": "a"}}`:                                                      "only metadata.labels, metadata.annotations and spec can be set, not name",
		`{"runStrategy": "Always"}`:                                                        "can be set, not runStrategy",
		`{"spec": {"nodeSelector": 7}}`:                                                    field + ": ",
		`{"spec": {"domain": 7}}`:                                                          field + ".spec.domain: Sallyport sets",
		`{"metadata": 7}`:                                                                  field + ": ",
		`{"spec": 7}`:                                                                      field + ": ",
		`7`:                                                                                field + ": ",
	} {
		t.Run(template, func(t *testing.T) {
			r, _ := newRuntime(t)
			_, err := r.Ensure(t.Context(), templated(template))
			if !runtime.IsInvalidSpec(err) || !strings.Contains(runtime.Message(err), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			var all virtv1.VirtualMachineList
			if err := r.Live.List(t.Context(), &all); err != nil || len(all.Items) > 0 {
				t.Errorf("created %v, %v", all.Items, err)
			}
		})
	}
}
