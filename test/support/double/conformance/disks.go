package conformance

import (
	"context"
	goruntime "runtime"
	"slices"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// disks tests runtimes that have disks by themselves.
var disks = []part{
	{"a disk that does not exist", []string{"Disk"}, diskAbsent},
	{"ensuring a disk twice gives one", []string{"Disk"}, diskTwice},
	{"a disk whose making lost its reply is made once", []string{"Disk", "LoseReply"}, diskUnseen},
	{"a disk is made from its source, and not without it", []string{"Disk", "Source"}, diskSourced},
	{"another's disk of the same name is held, and taken over", []string{"Disk"}, diskTakenOver},
	{"another's disk is taken over on the machine that has it", []string{"HotDisk"}, attachedTakenOver},
	{"a disk grows and never shrinks", []string{"Disk"}, diskGrows},
	{"a disk that is attached grows or stays as it is", []string{"HotDisk"}, attachedGrows},
	{"a disk that was made and is gone is not made again", []string{"Disk"}, diskGone},
	{"a disk is attached and detached, twice is success", []string{"HotDisk"}, diskAttached},
	{"an attachment whose reply was lost is repeated", []string{"HotDisk", "LoseReply"}, attachUnseen},
	{"two disks on a machine", []string{"HotDisk"}, twoDisks},
	{"a disk that is attached is not deleted", []string{"HotDisk"}, diskInUse},
	{"a disk that another machine has is not attached", []string{"HotDisk"}, diskTaken},
	{"a disk is attached while its machine is on", []string{"HotDisk"}, diskHot},
	{"a disk survives the power-offs of its machine", []string{"HotDisk"}, diskStays},
	{"deleting a machine leaves its disks", []string{"HotDisk", "Makes"}, diskOutlives},
	{"a disk and a machine that is not there", []string{"HotDisk"}, diskWithoutMachine},
	{"what is in flight keeps disks from being attached", []string{"HotDisk", "Hold"}, diskWhileBusy},
	{"an attachment in flight can be seen, and nothing else goes with it", []string{"HotDisk", "Hold"}, attachInFlight},
	{"calls about disks whose context has ended do nothing", []string{"Disk"}, diskEndedContext},
}

// diskCall makes a call of a Disks.
func (s *suite) diskCall(ctx context.Context, verb runtime.Verb, d runtime.Disk, m runtime.Machine, call func(context.Context, runtime.Disks) error) error {
	return runtime.UseDisk(ctx, runtime.NewClient(s.Runtime), verb, d, m, call)
}

func (s *suite) tryEnsureDisk(d runtime.Disk) (id string, err error) {
	err = s.diskCall(s.ctx, runtime.VerbEnsureDisk, d, runtime.Machine{}, func(ctx context.Context, able runtime.Disks) (err error) {
		id, err = able.EnsureDisk(ctx, d)
		return err
	})
	return id, err
}

func (s *suite) deleteDisk(d runtime.Disk) error {
	return s.diskCall(s.ctx, runtime.VerbDeleteDisk, d, runtime.Machine{}, func(ctx context.Context, able runtime.Disks) error {
		return able.DeleteDisk(ctx, d)
	})
}

// record notes that the status of a VirtualDisk says that the machine has it, as is written before it is attached.
func (s *suite) record(m runtime.Machine, d runtime.Disk) {
	d.Holder = m.UID
	s.forget(m, d.UID)
	s.recorded[m.UID] = append(s.recorded[m.UID], d)
}

// forget notes that no status says so any more.
func (s *suite) forget(m runtime.Machine, disk types.UID) {
	s.recorded[m.UID] = slices.DeleteFunc(slices.Clone(s.recorded[m.UID]), func(d runtime.Disk) bool { return d.UID == disk })
}

// known is the machine with the disks that are recorded for it.
func (s *suite) known(m runtime.Machine) runtime.Machine {
	m.Disks = append(slices.Clone(m.Disks), s.recorded[m.UID]...)
	return m
}

// tryAttach attaches a disk that is recorded for the machine. If another machine has it, it is not recorded for this one any more.
func (s *suite) tryAttach(m runtime.Machine, d runtime.Disk) error {
	s.record(m, d)
	err := s.diskCall(s.ctx, runtime.VerbAttach, d, s.known(m), func(ctx context.Context, able runtime.Disks) error {
		return able.Attach(ctx, s.known(m), d)
	})
	if err != nil && !runtime.MayHaveActed(err) {
		s.forget(m, d.UID)
	}
	return err
}

func (s *suite) tryDetach(m runtime.Machine, uid types.UID) error {
	return s.diskCall(s.ctx, runtime.VerbDetach, runtime.Disk{UID: uid}, s.known(m), func(ctx context.Context, able runtime.Disks) error {
		return able.Detach(ctx, s.known(m), uid)
	})
}

// observeDisk looks once.
func (s *suite) observeDisk(d runtime.Disk) (seen runtime.DiskObservation) {
	s.Helper()
	s.must(s.diskCall(s.ctx, runtime.VerbObserveDisk, d, runtime.Machine{}, func(ctx context.Context, able runtime.Disks) (err error) {
		seen, err = able.ObserveDisk(ctx, d)
		return err
	}), "observing the disk")
	return seen
}

// diskIs fails the part unless the disk is there, with that size, and attached to those machines alone.
func (s *suite) diskIs(d runtime.Disk, holders ...runtime.Machine) {
	s.Helper()
	seen := s.observeDisk(d)
	want := runtime.DiskObservation{Exists: true, ID: d.ID, Home: seen.Home, Bytes: d.Bytes()}
	for _, m := range holders {
		want.AttachedTo = append(want.AttachedTo, string(m.UID))
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		s.Errorf("the disk is not as it should be (-want +got):\n%s", diff)
	}
}

// madeDisk gives a disk that exists, with its ID.
func (s *suite) madeDisk(name string) runtime.Disk {
	s.Helper()
	d := s.Disk(s.T, name)
	for range steps {
		id, err := s.tryEnsureDisk(d)
		s.must(err, "ensuring the disk")
		if id != "" {
			d.ID = id
			s.diskIs(d)
			return d
		}
	}
	s.Fatal("the disk was never made")
	return d
}

// attach attaches the disk and waits until the machine has it.
func (s *suite) attach(m runtime.Machine, d runtime.Disk) runtime.Observation {
	s.Helper()
	s.must(s.tryAttach(m, d), "attaching")
	return s.has(m, d, true)
}

// detach detaches the disk and waits until the machine does not have it any more.
func (s *suite) detach(m runtime.Machine, d runtime.Disk) runtime.Observation {
	s.Helper()
	s.record(m, d)
	s.must(s.tryDetach(m, d.UID), "detaching")
	seen := s.has(m, d, false)
	s.forget(m, d.UID)
	return seen
}

// has waits until nothing is in flight, and the machine has the disk or does not.
func (s *suite) has(m runtime.Machine, d runtime.Disk, want bool) runtime.Observation {
	s.Helper()
	what := "quiet and with the disk " + d.Name
	if !want {
		what = "quiet and without the disk " + d.Name
	}
	return s.until(m, what, func(o runtime.Observation) bool {
		return o.Quiet() && o.Plugging == "" && slices.Contains(o.Disks, v1alpha1.AttachedDisk{Name: d.Name, UID: d.UID}) == want
	})
}

// resized is the disk with another size in its spec.
func resized(d runtime.Disk, bytes int64) runtime.Disk {
	d.Spec = d.Spec.DeepCopy()
	d.Spec.Size = *resource.NewQuantity(bytes, resource.BinarySI)
	return d
}

func diskAbsent(s *suite) {
	d := s.Disk(s.T, "absent")
	for range 2 {
		if diff := cmp.Diff(runtime.DiskObservation{}, s.observeDisk(d)); diff != "" {
			s.Errorf("a disk that does not exist is shown as (-want +got):\n%s", diff)
		}
		s.must(s.deleteDisk(d), "deleting a disk that does not exist")
	}
	m := s.made("with-no-disk")
	s.wants(runtime.IsNotFound, s.tryAttach(m, d), "NotFound", "attaching a disk that does not exist")
	if seen := s.quiet(m); len(seen.Disks) > 0 {
		s.Errorf("the machine has the disks %v", seen.Disks)
	}
}

func diskTwice(s *suite) {
	d := s.madeDisk("twice")
	fresh := d
	fresh.ID = ""
	for _, again := range []runtime.Disk{fresh, d} {
		if id, err := s.tryEnsureDisk(again); err != nil || id != d.ID {
			s.Errorf("the disk %s was ensured as %q, with error %v", d.ID, id, err)
		}
	}
	s.diskIs(d)
	if other := s.madeDisk("other"); other.ID == d.ID {
		s.Errorf("two disks have the ID %s", d.ID)
	}
	s.must(s.deleteDisk(d), "deleting")
	s.must(s.deleteDisk(d), "deleting again")
	if seen := s.observeDisk(d); seen.Exists {
		s.Errorf("a disk that was deleted is %+v", seen)
	}
}

func diskUnseen(s *suite) {
	d := s.Disk(s.T, "unseen")
	s.LoseReply(s.T, runtime.Machine{}, runtime.VerbEnsureDisk)
	_, err := s.tryEnsureDisk(d)
	s.lost(err, "ensuring")
	made := s.madeDisk("unseen-other")
	found := s.observeDisk(d)
	for range steps {
		if id, err := s.tryEnsureDisk(d); err != nil || found.Exists && id != found.ID {
			s.Fatalf("the disk that a lost reply left is %+v, and was ensured as %q, with error %v", found, id, err)
		} else if id != "" {
			d.ID = id
			break
		}
	}
	if d.ID == "" || d.ID == made.ID {
		s.Errorf("got the ID %q", d.ID)
	}
	s.diskIs(d)
}

func diskGrows(s *suite) {
	d := s.madeDisk("grown")
	larger := resized(d, 3*d.Bytes())
	for range 2 {
		if id, err := s.tryEnsureDisk(larger); err != nil || id != d.ID {
			s.Errorf("growing the disk %s gave %q, with error %v", d.ID, id, err)
		}
	}
	s.diskIs(larger)
	if _, err := s.tryEnsureDisk(d); err != nil {
		s.wants(runtime.IsInvalidState, err, "InvalidState, or none", "shrinking")
	}
	s.diskIs(larger)
}

func attachedGrows(s *suite) {
	m, d := s.made("with-grown"), s.madeDisk("grown-in-use")
	s.attach(m, d)
	largest := resized(d, 5*d.Bytes())
	if _, err := s.tryEnsureDisk(largest); err != nil {
		s.wants(runtime.IsInvalidState, err, "InvalidState, or none", "growing a disk that is attached")
		largest = d
	}
	s.has(m, d, true)
	s.diskIs(largest, m)
	s.detach(m, d)
	s.diskIs(largest)
}

func diskGone(s *suite) {
	d := s.madeDisk("gone")
	s.must(s.deleteDisk(d), "deleting")
	for range 2 {
		_, err := s.tryEnsureDisk(d)
		s.wants(runtime.IsNotFound, err, "NotFound", "ensuring a disk that was made and is gone")
		if seen := s.observeDisk(d); seen.Exists {
			s.Fatalf("a disk that is gone was made again: %+v", seen)
		}
	}
	s.wants(runtime.IsNotFound, s.tryAttach(s.made("with-gone"), d), "NotFound", "attaching")
}

func diskAttached(s *suite) {
	m, d := s.made("attached"), s.madeDisk("attached")
	for range 2 {
		s.stays(m, s.attach(m, d))
		s.diskIs(d, m)
		if _, err := s.tryEnsureDisk(d); err != nil {
			s.Errorf("ensuring a disk that is attached: %v", err)
		}
	}
	for range 2 {
		s.stays(m, s.detach(m, d))
		s.diskIs(d)
	}
	s.attach(m, d)
	s.diskIs(d, m)
}

func attachUnseen(s *suite) {
	m, d := s.made("unseen"), s.madeDisk("attached-unseen")
	s.LoseReply(s.T, m, runtime.VerbAttach)
	s.lost(s.tryAttach(m, d), "attaching")
	s.quiet(m)
	s.attach(m, d)
	s.LoseReply(s.T, m, runtime.VerbDetach)
	s.lost(s.tryDetach(m, d.UID), "detaching")
	s.quiet(m)
	s.detach(m, d)
	s.diskIs(d)
}

func twoDisks(s *suite) {
	m, a, b := s.made("two"), s.madeDisk("a"), s.madeDisk("b")
	s.attach(m, a)
	if seen := s.attach(m, b); len(seen.Disks) != 2 {
		s.Errorf("the machine has the disks %v", seen.Disks)
	}
	s.detach(m, a)
	s.has(m, b, true)
	s.diskIs(a)
	s.diskIs(b, m)
}

func diskInUse(s *suite) {
	m, d := s.made("using"), s.madeDisk("used")
	s.attach(m, d)
	s.wants(runtime.IsInvalidState, s.deleteDisk(d), "InvalidState", "deleting a disk that is attached")
	s.has(m, d, true)
	s.diskIs(d, m)
	s.detach(m, d)
	s.must(s.deleteDisk(d), "deleting")
}

func diskTaken(s *suite) {
	m, other, d := s.made("holder"), s.made("taker"), s.madeDisk("taken")
	s.attach(m, d)
	for _, power := range []func(runtime.Machine) runtime.Observation{s.quiet, s.on} {
		power(m)
		was := power(other)
		s.wants(runtime.IsInvalidState, s.tryAttach(other, d), "InvalidState", "attaching what another machine has")
		s.stays(other, was)
		s.must(s.tryDetach(other, d.UID), "detaching what another machine has")
		s.diskIs(d, m)
	}
	s.detach(m, d)
	s.attach(other, d)
	s.diskIs(d, other)
}

func diskHot(s *suite) {
	m, d := s.made("hot"), s.madeDisk("hot")
	was := s.on(m)
	seen := s.attach(m, d)
	s.diskIs(d, m)
	if seen.Power != v1alpha1.PowerRunning || seen.Incarnation != was.Incarnation {
		s.Errorf("attaching turned %+v into %+v", was, seen)
	}
	seen = s.detach(m, d)
	s.diskIs(d)
	if diff := cmp.Diff(was, seen); diff != "" {
		s.Errorf("attaching and detaching have changed the machine (-before +after):\n%s", diff)
	}
}

func diskStays(s *suite) {
	m, d := s.made("restarted"), s.madeDisk("restarted")
	s.attach(m, d)
	for range 2 {
		s.on(m)
		s.has(m, d, true)
		s.off(m)
		s.has(m, d, true)
	}
	s.diskIs(d, m)
}

// diskOutlives is what all of this is for.
func diskOutlives(s *suite) {
	m, a, b := s.made("mortal"), s.madeDisk("kept"), s.madeDisk("kept-too")
	larger := resized(a, 2*a.Bytes())
	_, err := s.tryEnsureDisk(larger)
	s.must(err, "growing")
	s.attach(m, larger)
	s.attach(m, b)
	s.on(m)
	s.off(m)
	s.gone(m)
	for _, d := range []runtime.Disk{larger, b} {
		s.diskIs(d)
		if id, err := s.tryEnsureDisk(d); err != nil || id != d.ID {
			s.Errorf("a disk that outlived its machine was ensured as %q, with error %v", id, err)
		}
	}
	next := s.made("next")
	s.attach(next, larger)
	s.diskIs(larger, next)
}

func diskWithoutMachine(s *suite) {
	m, d := s.Machine(s.T, "never-made"), s.madeDisk("without")
	s.wants(runtime.IsNotFound, s.tryAttach(m, d), "NotFound", "attaching")
	s.wants(runtime.IsNotFound, s.tryDetach(m, d.UID), "NotFound", "detaching")
	s.diskIs(d)
}

func diskWhileBusy(s *suite) {
	d := s.madeDisk("waiting")
	m, release := s.held("busy-with-disk")
	s.wants(runtime.IsInvalidState, s.tryAttach(m, d), "InvalidState", "attaching while the machine is being powered on")
	s.must(s.tryDetach(m, d.UID), "detaching what is not attached")
	release()
	s.power(m, v1alpha1.PowerRunning)
	s.has(m, d, false)
	s.attach(m, d)
}

func attachInFlight(s *suite) {
	m, d := s.made("attaching"), s.madeDisk("attaching")
	s.record(m, d)
	release := s.Hold(s.T, m, runtime.TaskReconfigure)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var err error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = s.diskCall(ctx, runtime.VerbAttach, d, m, func(ctx context.Context, able runtime.Disks) error { return able.Attach(ctx, s.known(m), d) })
	}()
	// The call may wait for the end of what it has begun.
	for is := false; !is && s.observe(m).Quiet(); goruntime.Gosched() {
		select {
		case <-returned:
			is = true
		default:
		}
	}
	cancel()
	<-returned
	if err != nil {
		s.wants(runtime.IsUnavailable, err, "Unavailable", "attaching until the context has ended")
	}
	s.shows(m, runtime.TaskReconfigure)
	s.wants(runtime.IsInvalidState, s.tryDetach(m, d.UID), "InvalidState", "detaching what is being attached")
	s.wants(runtime.IsInvalidState, s.Runtime.PowerOn(s.ctx, s.known(m)), "InvalidState", "powering on")
	if err := s.tryAttach(m, d); err != nil {
		s.wants(runtime.IsInvalidState, err, "InvalidState, or none", "attaching again")
	}
	s.record(m, d) // which its status still says
	s.shows(m, runtime.TaskReconfigure)
	release()
	s.has(m, d, true)
	s.diskIs(d, m)
}

func diskEndedContext(s *suite) {
	m, d, absent := s.made("unasked"), s.madeDisk("unasked"), s.Disk(s.T, "never-made")
	was := s.quiet(m)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	for verb, call := range map[runtime.Verb]func(context.Context, runtime.Disks) error{
		runtime.VerbObserveDisk: func(ctx context.Context, able runtime.Disks) error {
			_, err := able.ObserveDisk(ctx, d)
			return err
		},
		runtime.VerbEnsureDisk: func(ctx context.Context, able runtime.Disks) error {
			_, err := able.EnsureDisk(ctx, absent)
			return err
		},
		runtime.VerbDeleteDisk: func(ctx context.Context, able runtime.Disks) error { return able.DeleteDisk(ctx, d) },
		runtime.VerbAttach:     func(ctx context.Context, able runtime.Disks) error { return able.Attach(ctx, m, d) },
		runtime.VerbDetach:     func(ctx context.Context, able runtime.Disks) error { return able.Detach(ctx, m, d.UID) },
	} {
		s.wants(runtime.IsUnavailable, s.diskCall(ended, verb, d, m, call), "Unavailable", string(verb))
	}
	s.stays(m, was)
	s.diskIs(d)
	if seen := s.observeDisk(absent); seen.Exists {
		s.Errorf("a call whose context had ended made the disk %+v", seen)
	}
}
