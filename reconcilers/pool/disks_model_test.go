package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What a model has of disks: members take and give up theirs, as the reconcilers of machines and disks have them do.

const ttl = time.Hour

// drawDisks draws whether members have a disk, and what becomes of it.
func (m *model) drawDisks() ([]v1alpha1.VirtualDiskTemplate, []v1alpha1.BlockDeviceRef) {
	reclaim := rapid.SampledFrom([]v1alpha1.DiskReclaim{
		{}, {OnScaleDown: v1alpha1.ReclaimDelete}, {OnScaleDown: v1alpha1.ReclaimRetain},
		{OnScaleDown: v1alpha1.ReclaimRetain, TTL: &metav1.Duration{Duration: ttl}},
		{OnScaleDown: v1alpha1.ReclaimRetain, TTL: &metav1.Duration{Duration: ttl}, Keep: new(int32)},
	}).Draw(m.T, "reclaim")
	if reclaim.OnScaleDown == "" {
		return nil, nil
	}
	return []v1alpha1.VirtualDiskTemplate{{Name: "data", Reclaim: reclaim, Spec: v1alpha1.VirtualDiskSpec{
		Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
	}}}, []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}}
}

// judgeDisk is told of each deletion of a disk by a pool.
func (m *model) judgeDisk(d *v1alpha1.VirtualDisk) {
	reclaim := m.server.pool().Spec.VirtualDiskTemplates[0].Reclaim
	switch {
	case d.Status.AttachedTo != nil:
		m.Fatalf("disk %s was deleted, and %s has it", d.Name, d.Status.AttachedTo.Name)
	case reclaim.OnScaleDown == v1alpha1.ReclaimRetain && (reclaim.TTL == nil || m.server.now.Sub(freeSince(d)) < ttl):
		m.Fatalf("disk %s was deleted at %s, and is to be kept: free since %s", d.Name, m.server.now, freeSince(d))
	}
}

// takes has members take the disks that their specs name, if nobody has them.
func (m *model) takes() {
	for _, vm := range m.staying() {
		for _, ref := range vm.Spec.BlockDeviceRefs {
			for _, d := range m.server.disks() {
				if d.Name == ref.Name && d.Status.AttachedTo == nil && d.DeletionTimestamp.IsZero() {
					m.take(&vm, &d)
				}
			}
		}
	}
}

func (m *model) take(vm *v1alpha1.VirtualMachine, d *v1alpha1.VirtualDisk) {
	if d.Status.FreeSince != nil && m.server.pool().Spec.VirtualDiskTemplates[0].Reclaim.OnScaleDown == v1alpha1.ReclaimDelete {
		m.Fatalf("%s was given disk %s, which another had", vm.Name, d.Name)
	}
	d.Status.AttachedTo, d.Status.FreeSince = &v1alpha1.DiskHolder{Name: vm.Name, UID: vm.UID}, nil
	m.server.must(m.server.Status().Update(m.ctx, d))
}

// disksGoOn frees the disks of machines that are gone, and brings deletions of disks to their end.
func (m *model) disksGoOn() {
	there := map[types.UID]bool{}
	for _, vm := range m.server.members() {
		there[vm.UID] = true
	}
	for _, d := range m.server.disks() {
		switch {
		case d.Status.AttachedTo != nil && !there[d.Status.AttachedTo.UID]:
			d.Free(m.server.now)
			m.server.must(m.server.Status().Update(m.ctx, &d))
		case d.Status.AttachedTo == nil && !d.DeletionTimestamp.IsZero():
			d.Finalizers = nil
			m.server.must(m.server.Update(m.ctx, &d))
		}
	}
}

// disksSettled tells whether each member has its disk, and no disk is there that is not kept.
func (m *model) disksSettled() bool {
	templates := m.server.pool().Spec.VirtualDiskTemplates
	has := map[types.UID]int{}
	for _, d := range m.server.disks() {
		switch {
		case !d.DeletionTimestamp.IsZero():
			return false
		case d.Status.AttachedTo != nil:
			has[d.Status.AttachedTo.UID]++
		case templates[0].Reclaim.OnScaleDown == v1alpha1.ReclaimDelete:
			return false
		}
	}
	for _, vm := range m.server.members() {
		if has[vm.UID] != len(templates) {
			return false
		}
	}
	return true
}
