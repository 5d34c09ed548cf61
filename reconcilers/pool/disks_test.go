package pool

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// withDisk gives members a disk, of which becomes what reclaim says.
func withDisk(reclaim v1alpha1.DiskReclaim) func(*v1alpha1.VirtualMachinePoolSpec) {
	return func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.VirtualDiskTemplates = []v1alpha1.VirtualDiskTemplate{{Name: "data", Reclaim: reclaim, Spec: v1alpha1.VirtualDiskSpec{
			Size: resource.MustParse("1Gi"), Runtime: v1alpha1.VirtualDiskRuntime{Pod: &v1alpha1.VolumeDisk{}},
		}}}
		s.VirtualMachineTemplate.Spec.BlockDeviceRefs = []v1alpha1.BlockDeviceRef{{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "data"}}
	}
}

var (
	deleted  = v1alpha1.DiskReclaim{OnScaleDown: v1alpha1.ReclaimDelete}
	retained = v1alpha1.DiskReclaim{OnScaleDown: v1alpha1.ReclaimRetain}
)

// use has members take their disks, machines that are gone give them up, and deletions come to their end, until the pool rests.
func (f *fixture) use() {
	f.Helper()
	for range 10 {
		f.settle()
		there := map[string]bool{}
		for _, vm := range f.server.members() {
			there[vm.Name] = true
		}
		for _, d := range f.server.disks() {
			holder := strings.Replace(d.Name, "-data-", "-", 1)
			switch {
			case d.Status.AttachedTo == nil && !d.DeletionTimestamp.IsZero():
				d.Finalizers = nil
				f.must(f.server.Update(f.Context(), &d))
			case d.Status.AttachedTo == nil && there[holder]:
				d.Status.AttachedTo, d.Status.FreeSince = &v1alpha1.DiskHolder{Name: holder}, nil
				f.must(f.server.Status().Update(f.Context(), &d))
			case d.Status.AttachedTo != nil && !there[holder]:
				d.Free(f.server.now)
				f.must(f.server.Status().Update(f.Context(), &d))
			}
		}
	}
}

// disks gives the disks as "name uid", in short.
func (f *fixture) disks() string {
	var all []string
	for _, d := range f.server.disks() {
		all = append(all, strings.TrimPrefix(d.Name, "web-data-")+":"+string(d.UID))
	}
	return strings.Join(all, " ")
}

func TestDiskOfTheNumber(t *testing.T) {
	for name, c := range map[string]struct {
		reclaim v1alpha1.DiskReclaim
		same    bool
	}{"retained": {retained, true}, "deleted": {deleted, false}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, v1alpha1.ScaleDownNewestFirst, withDisk(c.reclaim))
			f.use()
			before := f.disks()
			f.scale(1)
			f.use()
			if after := f.disks(); (after == before) != c.same {
				t.Errorf("of %s there is %s", before, after)
			}
			f.scale(2)
			f.use()
			if after := f.disks(); (after == before) != c.same || len(f.server.disks()) != 2 {
				t.Errorf("the next member has %s, and it was %s", after, before)
			}
			if vm := f.server.members()[1]; vm.Spec.BlockDeviceRefs[0].Name != "web-data-1" {
				t.Errorf("it names %+v", vm.Spec.BlockDeviceRefs)
			}
		})
	}
}

// A retained disk goes when its time is up, but for those that were freed last; and the pool looks again when that is.
func TestDiskExpires(t *testing.T) {
	keep := int32(1)
	f := newFixture(t, 4, v1alpha1.ScaleDownNewestFirst, withDisk(v1alpha1.DiskReclaim{
		OnScaleDown: v1alpha1.ReclaimRetain, TTL: &metav1.Duration{Duration: time.Hour}, Keep: &keep,
	}))
	f.use()
	for replicas := 3; replicas >= 1; replicas-- { // web-3, web-2 and web-1 go, ten minutes after each other
		f.scale(replicas)
		f.use()
		f.server.now = f.server.now.Add(10 * time.Minute)
	}
	count := func(want int, when string) {
		t.Helper()
		f.use()
		if got := len(f.server.disks()); got != want {
			t.Errorf("%s there are %s", when, f.disks())
		}
	}
	count(4, "at first")
	_, again, _ := f.look()
	if again <= 0 || again > 30*time.Minute {
		t.Errorf("it looks again in %s", again)
	}
	f.server.now = f.server.now.Add(again)
	count(3, "after an hour")
	f.server.now = f.server.now.Add(24 * time.Hour)
	count(2, "after a day")
	if !strings.Contains(f.disks(), "1:") || !strings.Contains(f.disks(), "0:") {
		t.Errorf("kept is %s", f.disks())
	}
}

// What a template says comes to the disks that are there, but that it is smaller.
func TestDiskTemplateChanges(t *testing.T) {
	f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(deleted))
	f.use()
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) {
		s.VirtualDiskTemplates[0].Spec.Size = resource.MustParse("2Gi")
		s.VirtualDiskTemplates[0].Reclaim = retained
	})
	f.use()
	d := f.server.disks()[0]
	if d.Spec.Size.String() != "2Gi" || d.Labels[v1alpha1.LabelReclaim] != "Retain" {
		t.Errorf("it is %+v", d)
	}
	d.Spec.Size = resource.MustParse("3Gi")
	f.must(f.server.Update(f.Context(), &d))
	f.use()
	f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) { s.VirtualDiskTemplates[0].Reclaim = deleted })
	f.use()
	if d := f.server.disks()[0]; d.Spec.Size.String() != "3Gi" || d.Labels[v1alpha1.LabelReclaim] != "Delete" {
		t.Errorf("it shrinks to %s: %v", d.Spec.Size.String(), d.Labels)
	}
}

// A template that is taken out is taken off the members; its disks go once they are free, unless they were to be kept.
func TestDiskTemplateTakenOut(t *testing.T) {
	for name, c := range map[string]struct {
		reclaim v1alpha1.DiskReclaim
		stay    int
	}{"retained": {retained, 1}, "deleted": {deleted, 0}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(c.reclaim))
			f.use()
			f.edit(func(s *v1alpha1.VirtualMachinePoolSpec) {
				s.VirtualDiskTemplates, s.VirtualMachineTemplate.Spec.BlockDeviceRefs = nil, nil
			})
			f.settle()
			if vm := f.server.members()[0]; len(vm.Spec.BlockDeviceRefs) != 0 {
				t.Fatalf("it names %+v", vm.Spec.BlockDeviceRefs)
			}
			if len(f.server.disks()) != 1 {
				t.Fatal("the disk went while the machine had it")
			}
			d := f.server.disks()[0]
			d.Free(f.server.now)
			f.must(f.server.Status().Update(f.Context(), &d))
			f.settle()
			going := 0
			for _, d := range f.server.disks() {
				if d.DeletionTimestamp.IsZero() {
					going++
				}
			}
			if going != c.stay {
				t.Errorf("there are %+v", f.server.disks())
			}
		})
	}
}

// Somebody else's disk of that name is left alone, and so is its number.
func TestDiskOfAnother(t *testing.T) {
	f := newFixture(t, 0, v1alpha1.ScaleDownNewestFirst, withDisk(retained))
	theirs := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-data-0"}}
	f.must(f.server.Create(f.Context(), theirs))
	f.scale(1)
	f.settle()
	if vms := f.server.members(); len(vms) != 1 || vms[0].Name != "web-1" || vms[0].Spec.BlockDeviceRefs[0].Name != "web-data-1" {
		t.Errorf("there is %+v", vms)
	}
	after := &v1alpha1.VirtualDisk{}
	f.must(f.server.Get(f.Context(), client.ObjectKeyFromObject(theirs), after))
	if after.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("theirs is %+v", after)
	}
}

// A disk that somebody deleted before its member had it is made again: there was nothing on it.
func TestDiskMadeAgain(t *testing.T) {
	f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(retained))
	d := f.server.disks()[0]
	d.Finalizers = nil
	f.must(f.server.Update(f.Context(), &d))
	f.must(f.server.Delete(f.Context(), &d))
	f.settle()
	if disks := f.server.disks(); len(disks) != 1 || disks[0].UID == d.UID {
		t.Errorf("there is %+v", disks)
	}
}

// A member is not made with a disk that is being deleted, as by hand: it waits for that, and gets a new one.
func TestDiskThatGoes(t *testing.T) {
	f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(retained))
	f.use()
	f.scale(0)
	f.use()
	before := f.server.disks()[0]
	f.must(f.server.Delete(f.Context(), &before))
	f.scale(1)
	f.settle()
	if vms := f.server.members(); len(vms) != 0 {
		t.Fatalf("there is %+v", vms[0].Spec)
	}
	f.use()
	if vms, disks := f.server.members(), f.server.disks(); len(vms) != 1 || len(disks) != 1 || disks[0].UID == before.UID {
		t.Errorf("there is %+v, %+v", vms, disks)
	}
}

// The disk of a member that cannot be made, as for a quota, is not made and deleted over and over.
func TestDiskOfNoMember(t *testing.T) {
	f := newFixture(t, 0, v1alpha1.ScaleDownNewestFirst, withDisk(deleted))
	f.server.refuses = apierrors.NewForbidden(machines, "web-0", errors.New("exceeded quota"))
	f.scale(1)
	_, _, err := f.look()
	before := f.disks()
	for range 3 {
		_, _, _ = f.look()
	}
	if after := f.disks(); err == nil || before == "" || after != before {
		t.Errorf("there was %q and is %q; %v", before, after, err)
	}
	f.scale(0)
	f.use()
	if after := f.disks(); after != "" {
		t.Errorf("there is %s for nobody", after)
	}
}

// A disk that is ready stays while another of the same member is waited for.
func TestDiskThatIsReadyWaits(t *testing.T) {
	f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(deleted), func(s *v1alpha1.VirtualMachinePoolSpec) {
		log := *s.VirtualDiskTemplates[0].DeepCopy()
		log.Name = "log"
		s.VirtualDiskTemplates = append(s.VirtualDiskTemplates, log)
		s.VirtualMachineTemplate.Spec.BlockDeviceRefs = append(s.VirtualMachineTemplate.Spec.BlockDeviceRefs,
			v1alpha1.BlockDeviceRef{Kind: v1alpha1.BlockDeviceVirtualDisk, Name: "log"})
	})
	data := f.server.disks()[0]
	data.Status.AttachedTo = &v1alpha1.DiskHolder{Name: "web-0"}
	f.must(f.server.Status().Update(f.Context(), &data))
	data.Free(f.server.now)
	f.must(f.server.Status().Update(f.Context(), &data))
	f.must(f.server.Delete(f.Context(), &data))
	f.must(f.server.Delete(f.Context(), &f.server.members()[0]))
	f.settle()
	before := f.server.disks()[1]
	for range 3 {
		_, _, _ = f.look()
	}
	if after := f.server.disks()[1]; after.UID != before.UID || !after.DeletionTimestamp.IsZero() {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	if vms := f.server.members(); len(vms) != 0 {
		t.Errorf("there is %s", vms[0].Name)
	}
}

// A disk that somebody's machine takes at the last moment is not deleted.
func TestDiskTakenMeanwhile(t *testing.T) {
	for call := 1; ; call++ {
		f := newFixture(t, 1, v1alpha1.ScaleDownNewestFirst, withDisk(deleted))
		f.use()
		f.scale(0)
		f.settle()
		d := f.server.disks()[0]
		d.Free(f.server.now)
		f.must(f.server.Status().Update(f.Context(), &d))
		happened, late := false, false
		f.Before(call, func() {
			happened = true
			now := f.server.disks()[0]
			late = !now.DeletionTimestamp.IsZero()
			now.Status.AttachedTo = &v1alpha1.DiskHolder{Name: "theirs"}
			f.must(f.server.Status().Update(f.Context(), &now))
		})
		_, _, _ = f.look()
		if !happened {
			return
		}
		if now := f.server.disks()[0]; !late && !now.DeletionTimestamp.IsZero() {
			t.Errorf("before call %d: %+v", call, now)
		}
	}
}

// Each member boots from the image of the template. Its disk is its own, and none of the pool's.
func TestMembersBootFromAnImage(t *testing.T) {
	image := &v1alpha1.MachineDiskImage{Ref: v1alpha1.VMDiskImageReference{Name: "ubuntu"}}
	f := newFixture(t, 2, v1alpha1.ScaleDownNewestFirst, func(s *v1alpha1.VirtualMachinePoolSpec) { s.VirtualMachineTemplate.Spec.DiskImage = image })
	f.settle()
	members := f.server.members()
	for i := range members {
		if of := members[i].Spec.DiskImage; of == nil || of.Ref.Name != "ubuntu" || members[i].BlockDevices()[0].Name != members[i].Name+"-boot" {
			t.Errorf("%s boots from %+v", members[i].Name, members[i].BlockDevices())
		}
	}
	if disks := f.server.disks(); len(members) != 2 || len(disks) > 0 {
		t.Errorf("there are %d members, and disks of the pool: %v", len(members), disks)
	}
}
