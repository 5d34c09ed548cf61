package disk

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/test/support/double/fake"
)

// isGone reports whether a VirtualDisk is gone.
func (f *fixture) isGone(name string) bool {
	return apierrors.IsNotFound(f.Get(f.ctx, key(name), &v1alpha1.VirtualDisk{}))
}

var unobservable = map[string]error{
	"the runtime is disabled": runtime.NewNotSupported(nil, "machines of kind kubevirt are disabled"),
	"a name that cannot be":   runtime.NewInvalidSpec(nil, "metadata.name: too long"),
	"of another owner":        runtime.NewOwnedByAnother(nil, "PersistentVolumeClaim data is not the disk of VirtualDisk data"),
}

// A disk that was never made can be deleted, also if nobody can look whether it is there.
func TestDeletionOfWhatWasNeverMade(t *testing.T) {
	for name, err := range unobservable {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.machines.Script(fake.At{Verb: runtime.VerbObserveDisk}, fake.Fail(err).Always())
			d := f.disk("data")
			f.rests()
			f.must(f.Delete(f.ctx, d))
			f.rests()
			if !f.isGone("data") {
				t.Errorf("it stays: %s", f.shows("data"))
			}
		})
	}
	t.Run("no runtime", func(t *testing.T) {
		f := newFixture(t)
		f.p.disks.Runtimes = func(context.Context, *v1alpha1.VirtualDisk) (*runtime.Client, error) {
			return nil, unobservable["the runtime is disabled"]
		}
		d := f.disk("data")
		f.rests()
		f.must(f.Delete(f.ctx, d))
		f.rests()
		if !f.isGone("data") {
			t.Errorf("it stays: %s", f.shows("data"))
		}
	})
}

// A disk that was made, or that a process may have made before it died, waits until it can be observed. Users read how to give it up.
func TestDeletionOfWhatMayHaveBeenMade(t *testing.T) {
	for name, err := range unobservable {
		for _, recorded := range []bool{true, false} {
			f := newFixture(t)
			if !recorded {
				f.machines.Script(fake.At{Verb: runtime.VerbEnsureDisk}, fake.LoseReply())
			}
			d := f.disk("data")
			for range 2 {
				_ = f.p.look(f.p.disks, "data")
			}
			if status := f.get("data").Status; len(f.machines.Disks()) != 1 || (status.DiskID != "") != recorded {
				t.Fatalf("%s: made: %v, recorded: %+v", name, f.machines.Disks(), status)
			}
			f.machines.Script(fake.At{Verb: runtime.VerbObserveDisk}, fake.Fail(err).Always())
			f.must(f.Delete(f.ctx, d))
			f.rests()
			if got := f.shows("data"); !strings.HasPrefix(got, "Terminating ") {
				t.Errorf("%s: %s", name, got)
			}
			message := v1alpha1.ConditionReady.In(f.get("data").Status.Conditions).Message
			if !strings.HasSuffix(message, `: kubectl patch svd data -n team-a --type=merge -p '{"metadata":{"finalizers":[]}}'`) {
				t.Errorf("%s: users read %s", name, message)
			}
			f.machines.ClearScripts()
			f.rests()
			if !f.isGone("data") || len(f.machines.Disks()) > 0 {
				t.Errorf("%s: it stays: %v", name, f.machines.Disks())
			}
		}
	}
}

// The status says that the disk may exist before the runtime is asked to make it, and until it has the ID.
func TestProvisioningIsRecordedFirst(t *testing.T) {
	f := newFixture(t)
	var asked []bool
	f.machines.SetTag(func(_ context.Context, verb runtime.Verb, _ runtime.Machine) string {
		if verb == runtime.VerbEnsureDisk {
			asked = append(asked, f.get("data").Status.ProvisioningSince != nil)
		}
		return ""
	})
	f.disk("data")
	f.rests()
	if len(asked) == 0 || slices.Contains(asked, false) {
		t.Errorf("recorded when the runtime was asked: %v", asked)
	}
	if s := f.get("data").Status; s.ProvisioningSince != nil || s.DiskID == "" {
		t.Errorf("afterwards: %+v", s)
	}
}
