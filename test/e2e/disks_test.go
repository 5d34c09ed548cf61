package e2e

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/test/depth"
	"sallyport.dev/sallyport/test/double/fake"
	"sallyport.dev/sallyport/test/step"
)

// disk makes a VirtualDisk, and waits until it is there.
func (tm *team) disk(name string) {
	tm.Helper()
	tm.must(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualDisk", "metadata": {"name": %q},
		"spec": {"size": "1Gi", "runtime": {"pod": {}}}}`, name), "create", "-f", "-")
	tm.must("", "wait", "svd/"+name, "--for=condition=Ready", "--timeout=3m")
}

// onRuntime gives a disk as the runtime has it.
func (tm *team) onRuntime(name string) *fake.Disk {
	tm.Helper()
	disks, uid := stack.world.Disks(), types.UID(tm.get("svd/"+name, ".metadata.uid"))
	i := slices.IndexFunc(disks, func(d fake.Disk) bool { return d.Owner == uid })
	if i < 0 {
		return nil
	}
	return &disks[i]
}

// A disk outlives a machine, and goes with its data to the next. One that is being deleted waits for the machine that has it.
func TestDisk(t *testing.T) {
	tm := newTeam(t)
	tm.disk("data")
	was := tm.onRuntime("data")

	tm.machine("web-1", "Running", named)
	tm.await("svd/data", ".status.attachedTo.name", "web-1")
	tm.must("", "delete", "svm", "web-1", "--timeout=3m")
	tm.await("svd/data", ".status.phase", "Available")
	tm.machine("web-2", "Running", named)
	tm.await("svd/data", ".status.attachedTo.name", "web-2")
	tm.must("", "patch", "svd", "data", "--type=merge", "-p", `{"spec": {"size": "2Gi"}}`)
	tm.await("svd/data", ".status.capacity", "2Gi")
	if is := tm.onRuntime("data"); is == nil || is.ID != was.ID {
		t.Errorf("it was %+v and is %+v", was, is)
	}
	tm.refused("", []string{"patch", "svd", "data", "--type=merge", "-p", `{"spec": {"size": "1Gi"}}`}, "spec.size cannot shrink")

	tm.must("", "delete", "svd", "data", "--wait=false")
	tm.await("svd/data", ".status.conditions[?(@.type=='Ready')].reason", "DiskInUse")
	tm.must("", "patch", "svm", "web-2", "--type=merge", "-p", `{"spec": {"blockDeviceRefs": []}}`)
	tm.must("", "wait", "svd/data", "--for=delete", "--timeout=3m")
	tm.await("svm/web-2", ".status.phase", "Running")
}

// The disk of a member is kept, and the next member of that number gets it, with its data; or it is destroyed, and the next gets a new one.
func TestPoolDisks(t *testing.T) {
	for reclaim, same := range depth.Of(map[string]bool{"Retain": true}, map[string]bool{"Retain": true, "Delete": false}) {
		t.Run(reclaim, func(t *testing.T) {
			tm := &team{T: step.T{T: t}, namespace: newTeam(t).namespace}
			tm.must(fmt.Sprintf(poolWithDisks, reclaim), "create", "-f", "-")
			tm.members("web", 2)
			if got := tm.get("svm/web-1", ".status.disks[0].name"); got != "web-data-1" {
				t.Fatalf("web-1 has disk %q", got)
			}
			was := tm.onRuntime("web-data-1")
			tm.must("", "scale", "svmpool", "web", "--replicas=1")
			tm.members("web", 1)
			if same {
				tm.await("svd/web-data-1", ".status.phase", "Available")
			} else {
				tm.must("", "wait", "svd/web-data-1", "--for=delete", "--timeout=3m")
			}
			tm.must("", "patch", "svmpool", "web", "--type=json", "-p",
				`[{"op": "replace", "path": "/spec/virtualDiskTemplates/0/spec/size", "value": "2Gi"}, {"op": "replace", "path": "/spec/replicas", "value": 2}]`)
			tm.members("web", 2)
			for _, disk := range []string{"web-data-0", "web-data-1"} {
				tm.await("svd/"+disk, ".status.capacity", "2Gi")
			}
			if is := tm.onRuntime("web-data-1"); (is.ID == was.ID) != same {
				t.Errorf("it was %+v and is %+v", was, is)
			}
			tm.must("", "delete", "svmpool", "web", "--cascade=foreground", "--timeout=3m")
			tm.must("", "wait", "svd", "--all", "--for=delete", "--timeout=3m")
		})
	}
}

const poolWithDisks = `{"apiVersion": "sallyport.dev/v1alpha1", "kind": "VirtualMachinePool", "metadata": {"name": "web"}, "spec": {
	"replicas": 2, "scaleDownPolicy": "NewestFirst",
	"virtualDiskTemplates": [{"name": "data", "reclaim": {"onScaleDown": %q}, "spec": {"size": "1Gi", "runtime": {"pod": {}}}}],
	"virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}, "blockDeviceRefs": [{"kind": "VirtualDisk", "name": "data"}]}}}}`

func TestDisksAreRefused(t *testing.T) {
	tm := newTeam(t)
	for what, c := range map[string]struct{ kind, spec, says string }{
		"nothing":        {"VirtualDisk", `"size": "0", "runtime": {"pod": {}}`, "spec.size must be greater than 0"},
		"two runtimes":   {"VirtualDisk", `"size": "1Gi", "runtime": {"pod": {}, "kubevirt": {}}`, "needs exactly one of"},
		"of one adopted": {"VirtualMachine", `"blockDeviceRefs": [{"kind": "VirtualDisk", "name": "a"}], "runtime": {"vsphere": {"serverRef": {"name": "vc"}, "inventoryPath": "/dc/vm/a"}}`, "it keeps its own disks"},
		"twice":          {"VirtualMachine", `"blockDeviceRefs": [{"kind": "VirtualDisk", "name": "a"}, {"kind": "VirtualDisk", "name": "a"}], "runtime": {"pod": {}}`, "Duplicate value"},
		"boot order":     {"VirtualMachine", `"blockDeviceRefs": [{"kind": "VirtualDisk", "name": "a", "bootOrder": 1}, {"kind": "VirtualDisk", "name": "b", "bootOrder": 1}], "runtime": {"pod": {}}`, "two entries have the same bootOrder"},
		"not named":      {"VirtualMachinePool", poolSpec(`{"onScaleDown": "Delete"}`, ""), "must name each entry"},
		"not a template": {"VirtualMachinePool", poolSpec(`{"onScaleDown": "Delete"}`, `, "blockDeviceRefs": [{"kind": "VirtualDisk", "name": "data"}, {"kind": "VirtualDisk", "name": "other"}]`), "each entry must name an entry"},
		"kept, not kept": {"VirtualMachinePool", poolSpec(`{"onScaleDown": "Delete", "ttl": "1h"}`, named), "are only allowed with onScaleDown Retain"},
		"no time":        {"VirtualMachinePool", poolSpec(`{"onScaleDown": "Retain", "keep": 1}`, named), "reclaim.keep needs reclaim.ttl"},
		"a time ago":     {"VirtualMachinePool", poolSpec(`{"onScaleDown": "Retain", "ttl": "-1h"}`, named), "reclaim.ttl must be greater than 0"},
		"elsewhere":      {"VirtualMachinePool", `"scaleDownPolicy": "Explicit", "virtualDiskTemplates": [{"name": "data", "reclaim": {"onScaleDown": "Delete"}, "spec": {"size": "1Gi", "runtime": {"kubevirt": {}}}}], "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}` + named + `}}`, "each entry must have the spec.runtime of spec.virtualMachineTemplate"},
	} {
		t.Run(what, func(t *testing.T) {
			(&team{T: step.T{T: t}, namespace: tm.namespace}).refused(fmt.Sprintf(`{"apiVersion": "sallyport.dev/v1alpha1", "kind": %q,
				"metadata": {"name": "a"}, "spec": {%s}}`, c.kind, c.spec), []string{"create", "-f", "-"}, c.says)
		})
	}
}

const named = `, "blockDeviceRefs": [{"kind": "VirtualDisk", "name": "data"}]`

func poolSpec(reclaim, more string) string {
	return fmt.Sprintf(`"scaleDownPolicy": "Explicit", "virtualDiskTemplates": [{"name": "data", "reclaim": %s,
		"spec": {"size": "1Gi", "runtime": {"pod": {}}}}], "virtualMachineTemplate": {"spec": {"runtime": {"pod": {}}%s}}`, reclaim, more)
}
