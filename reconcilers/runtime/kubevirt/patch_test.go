package kubevirt_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeapi "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/kubevirt"
)

// newer has a field "newer" that the types lack wherever a newer KubeVirt can have one.
const newer = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {namespace: ns, name: vm, uid: vm-uid, annotations: {sallyport.dev/adopted-with-run-strategy: Halted}}
spec:
  newer: 1
  runStrategy: Manual
  template:
    spec:
      newer: 2
      domain:
        newer: 3
        cpu: {newer: 4, sockets: 1, model: host}
        memory: {newer: 5}
        devices:
          newer: 6
          disks:
          - {name: root, newer: 7, bootOrder: 1, disk: {bus: virtio, newer: 8}}
          - {name: disk-uid-data, newer: 9, disk: {bus: scsi}}
          - {name: other, newer: 10, bootOrder: 7, disk: {bus: virtio}}
      volumes:
      - {name: root, newer: 11, containerDisk: {image: root, newer: 12}}
      - {name: disk-uid-data, newer: 13, persistentVolumeClaim: {claimName: data-uid-data, hotpluggable: true}}
      - {name: other, sourceOfNewer: {newer: 14}}
status:
  newer: 15
  volumeRequests:
  - {newer: 16, addVolumeOptions: {name: theirs, newer: 17, disk: {name: theirs, newer: 18}, volumeSource: {newer: 19}}}
  - {newer: 20, removeVolumeOptions: {name: theirs-too}}
`

// fields are those of an object of the API.
type fields = map[string]any

// in returns the fields at a path.
func in(of fields, path ...string) fields {
	for _, key := range path {
		of = of[key].(fields)
	}
	return of
}

// disksAndVolumes changes both lists of the template.
func disksAndVolumes(o fields, change func(all []any, volumes bool) []any) {
	spec := in(o, "spec", "template", "spec")
	devices := in(spec, "domain", "devices")
	devices["disks"], spec["volumes"] = change(devices["disks"].([]any), false), change(spec["volumes"].([]any), true)
}

// withoutData removes the VirtualDisk.
func withoutData(o fields) {
	disksAndVolumes(o, func(all []any, _ bool) []any { return slices.Concat(all[:1], all[2:]) })
}

// newerAPI is an API whose KubeVirt is a newer one. It has one KubeVirt VirtualMachine, and perhaps its instance.
type newerAPI struct {
	client.WithWatch
	t  *testing.T
	vm *unstructured.Unstructured
	// befalls happens before the next request of a kind for the KubeVirt VirtualMachine.
	befalls map[string]func()
}

func newNewerAPI(t *testing.T, edit func(fields)) *newerAPI {
	t.Helper()
	vm := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(newer), &vm.Object); err != nil {
		t.Fatal(err)
	}
	vm.SetLabels(map[string]string{kubevirt.LabelMachine: "uid-web"})
	edit(vm.Object)
	scheme := kruntime.NewScheme()
	scheme.AddKnownTypeWithName(vm.GroupVersionKind(), &unstructured.Unstructured{})
	api := fakeapi.NewClientBuilder().WithScheme(scheme).WithObjects(vm).WithStatusSubresource(vm).Build()
	return &newerAPI{WithWatch: api, t: t, vm: vm, befalls: map[string]func(){}}
}

func (a *newerAPI) befall(kind string) {
	if befalls := a.befalls[kind]; befalls != nil {
		delete(a.befalls, kind)
		befalls()
	}
}

// now returns the KubeVirt VirtualMachine.
func (a *newerAPI) now() *unstructured.Unstructured {
	a.t.Helper()
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(a.vm.GroupVersionKind())
	if err := a.Get(a.t.Context(), client.ObjectKeyFromObject(a.vm), now); err != nil {
		a.t.Fatal(err)
	}
	return now
}

func (a *newerAPI) read(into client.Object) error {
	if whole, is := into.(*unstructured.Unstructured); is {
		a.befall("read of the whole")
		a.now().DeepCopyInto(whole)
		return nil
	}
	return kruntime.DefaultUnstructuredConverter.FromUnstructured(a.now().Object, into)
}

func (a *newerAPI) write(into client.Object, patch client.Patch, do func(client.Object, client.Patch) error) error {
	data, err := patch.Data(into)
	if err != nil {
		return err
	}
	a.befall("write")
	if err := do(a.now(), client.RawPatch(patch.Type(), data)); err != nil {
		return err
	}
	return a.read(into)
}

// runtime returns a runtime of that API.
func (a *newerAPI) runtime(vmi *virtv1.VirtualMachineInstance, with gate) (*kubevirt.Runtime, runtime.Disk) {
	r, disks := withDisks(a.t, []string{"data"})
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			switch into := into.(type) {
			case *virtv1.VirtualMachine, *unstructured.Unstructured:
				return a.read(into)
			case *virtv1.VirtualMachineInstance:
				if vmi != nil {
					vmi.DeepCopyInto(into)
					return nil
				}
			}
			return c.Get(ctx, key, into, opts...)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, into client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return a.write(into, patch, func(o client.Object, patch client.Patch) error { return a.Patch(ctx, o, patch) })
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, into client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			return a.write(into, patch, func(o client.Object, patch client.Patch) error { return a.Status().Patch(ctx, o, patch) })
		},
	})
	r.Live, r.Subresources = r.Client, with
	return r, disks[0]
}

// pluggedIn returns an instance with the VirtualDisk.
func pluggedIn() *virtv1.VirtualMachineInstance {
	vmi := instance()
	vmi.Spec.Volumes = []virtv1.Volume{volumeOf("disk-uid-data", "data-uid-data", true)}
	vmi.Status.VolumeStatus = []virtv1.VolumeStatus{{
		Name: "disk-uid-data", Phase: virtv1.VolumeReady, HotplugVolume: &virtv1.HotplugVolumeStatus{},
		PersistentVolumeClaimInfo: &virtv1.PersistentVolumeClaimInfo{ClaimName: "data-uid-data"},
	}}
	return vmi
}

// A write changes what it is to change, and drops nothing that a newer KubeVirt has, in the same entry or in others.
func TestWritesDropNothing(t *testing.T) {
	claim := fields{"claimName": "data-uid-data", "hotpluggable": true}
	disk := fields{"name": "disk-uid-data", "disk": fields{"bus": "scsi"}}
	withData := func(o fields) {
		disksAndVolumes(o, func(all []any, volumes bool) []any {
			if volumes {
				return append(all, fields{"name": "disk-uid-data", "persistentVolumeClaim": claim})
			}
			return append(all, disk)
		})
	}
	requested := func(request fields) func(fields) {
		return func(o fields) {
			in(o, "status")["volumeRequests"] = append(in(o, "status")["volumeRequests"].([]any), request)
		}
	}
	started := func(o fields) { in(o, "status")["stateChangeRequests"] = []any{fields{"action": "Start"}} }
	m, created := adopted(), templated("{}")
	created.UID, created.InstanceID = m.UID, "vm"
	created.Spec.Runtime.KubeVirt.Create.Template, created.Spec.NodeName, created.Spec.NodeSelector = nil, "", nil
	attach := func(r *kubevirt.Runtime, d runtime.Disk) error { return r.Attach(t.Context(), m, d) }
	detach := func(r *kubevirt.Runtime, d runtime.Disk) error { return r.Detach(t.Context(), m.With(d), d.UID) }
	for what, tc := range map[string]struct {
		before  func(fields)
		vmi     *virtv1.VirtualMachineInstance
		with    gate
		do      func(*kubevirt.Runtime, runtime.Disk) error
		changes func(fields)
	}{
		"attached, off":             {before: withoutData, do: attach, changes: withData},
		"attached, in the template": {before: withoutData, vmi: instance(), with: declarative, do: attach, changes: withData},
		"attached, by a request": {before: withoutData, vmi: instance(), with: imperative, do: attach, changes: requested(fields{
			"addVolumeOptions": fields{"name": "disk-uid-data", "disk": disk, "volumeSource": fields{"persistentVolumeClaim": claim}},
		})},
		"detached, off":             {do: detach, changes: withoutData},
		"detached, in the template": {vmi: pluggedIn(), with: declarative, do: detach, changes: withoutData},
		"detached, by a request":    {vmi: pluggedIn(), with: imperative, do: detach, changes: requested(fields{"removeVolumeOptions": fields{"name": "disk-uid-data"}})},
		"powered on with another size and boot order": {
			do: func(r *kubevirt.Runtime, d runtime.Disk) error { return r.PowerOn(t.Context(), created.With(d)) },
			changes: func(o fields) {
				domain := in(o, "spec", "template", "spec", "domain")
				cpu := in(domain, "cpu")
				cpu["sockets"], cpu["cores"], cpu["threads"], in(domain, "memory")["guest"] = int64(2), int64(1), int64(1), "64Mi"
				in(domain, "devices")["disks"].([]any)[2].(fields)["bootOrder"] = int64(2)
				started(o)
			},
		},
		"powered on before KubeVirt has written a status": {
			before: func(o fields) { delete(o, "status") },
			do:     func(r *kubevirt.Runtime, d runtime.Disk) error { return r.PowerOn(t.Context(), m.With(d)) },
			changes: func(o fields) {
				o["status"] = fields{}
				started(o)
			},
		},
		"released": {
			do:      func(r *kubevirt.Runtime, _ runtime.Disk) error { return r.Delete(t.Context(), m) },
			changes: func(o fields) { in(o, "spec")["runStrategy"] = "Halted" },
		},
	} {
		t.Run(what, func(t *testing.T) {
			if tc.before == nil {
				tc.before = func(fields) {}
			}
			api := newNewerAPI(t, tc.before)
			want := api.now().Object
			tc.changes(want)
			if err := tc.do(api.runtime(tc.vmi, tc.with)); err != nil {
				t.Fatal(err)
			}
			got := api.now().Object
			delete(want, "metadata")
			delete(got, "metadata")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A write is repeated on what another client has made of the object since it was read.
func TestWriteAfterAChange(t *testing.T) {
	for _, before := range []string{"read of the whole", "write"} {
		t.Run(before, func(t *testing.T) {
			api := newNewerAPI(t, func(fields) {})
			added := func(o fields) {
				disksAndVolumes(o, func(all []any, _ bool) []any {
					return slices.Insert(all, 1, any(fields{"name": "added", "newer": int64(21)}))
				})
			}
			api.befalls[before] = func() {
				now := api.now()
				added(now.Object)
				if err := api.Update(t.Context(), now); err != nil {
					t.Error(err)
				}
			}
			want := api.now().Object
			withoutData(want)
			added(want)
			r, d := api.runtime(nil, "")
			if err := r.Detach(t.Context(), adopted().With(d), d.UID); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want["spec"], api.now().Object["spec"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(api.befalls) > 0 {
				t.Error("nothing befell")
			}
		})
	}
}

// What a template says of a newer KubeVirt is passed on, also where the spec adds to it.
func TestTemplateDropsNothing(t *testing.T) {
	r, _ := newRuntime(t)
	var created client.Object
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			created = o
			return nil
		},
	})
	if _, err := r.Ensure(t.Context(), templated(`{"spec": {"newer": 1, "nodeSelector": {"disk": "ssd"}, "affinity": {"newer": 2, "nodeAffinity": {
		"newer": 3, "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "newer": 4, "preference": {"newer": 5}}]
	}}}}`)); err != nil {
		t.Fatal(err)
	}
	spec := in(created.(*unstructured.Unstructured).Object, "spec", "template", "spec")
	got := fields{"newer": spec["newer"], "nodeSelector": spec["nodeSelector"], "affinity": spec["affinity"]}
	node := fields{"matchFields": []any{fields{"key": "metadata.name", "operator": "In", "values": []any{"node-1"}}}}
	want := fields{
		"newer": int64(1), "nodeSelector": fields{"disk": "ssd", "zone": "a"},
		"affinity": fields{"newer": int64(2), "nodeAffinity": fields{
			"newer": int64(3), "preferredDuringSchedulingIgnoredDuringExecution": []any{
				fields{"weight": int64(1), "newer": int64(4), "preference": fields{"newer": int64(5)}},
				fields{"weight": int64(100), "preference": node},
			},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
