package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/replicas"
)

// dated reads objects of a UID and a resourceVersion.
type dated struct {
	client.Reader
	uid     types.UID
	version string
	missing bool
}

func (v dated) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if v.missing {
		return errors.New("not found")
	}
	o.SetUID(v.uid)
	o.SetResourceVersion(v.version)
	return nil
}

// An object of Sallyport's is not read live if the cache has it from a later time, as after a restore of etcd.
func TestObjectsOfThePast(t *testing.T) {
	for name, tc := range map[string]struct {
		of     client.Object
		cached dated
		past   bool
	}{
		"the cache is as new":          {&v1alpha1.VirtualMachine{}, dated{uid: "a", version: "9"}, false},
		"the cache is older":           {&v1alpha1.VirtualMachine{}, dated{uid: "a", version: "8"}, false},
		"the cache is newer":           {&v1alpha1.VirtualMachine{}, dated{uid: "a", version: "10"}, true},
		"the cache has another object": {&v1alpha1.VirtualMachine{}, dated{uid: "b", version: "10"}, false},
		"the cache has nothing":        {&v1alpha1.VirtualMachine{}, dated{missing: true}, false},
		"an operation":                 {&v1alpha1.VirtualMachineOperation{}, dated{uid: "a", version: "10"}, true},
		"a disk":                       {&v1alpha1.VirtualDisk{}, dated{uid: "a", version: "10"}, true},
		"a pool":                       {&v1alpha1.VirtualMachinePool{}, dated{uid: "a", version: "10"}, true},
		"an image":                     {&v1alpha1.VMDiskImage{}, dated{uid: "a", version: "10"}, true},
		"a template":                   {&v1alpha1.VSphereTemplate{}, dated{uid: "a", version: "10"}, true},
		"a kind that is not cached":    {&corev1.Secret{}, dated{uid: "a", version: "10"}, false},
	} {
		err := present{dated{uid: "a", version: "9"}, tc.cached}.Get(t.Context(), client.ObjectKey{Name: "x"}, tc.of)
		if errors.Is(err, replicas.ErrRestored) != tc.past {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The cache of a process that noticed the restore may have the configuration of before, without the annotation.
func TestNoticedForGood(t *testing.T) {
	r := &restored{}
	r.notice(time.Now())
	r.follow(&admissionregistrationv1.ValidatingWebhookConfiguration{})
	if err := r.halts(); !errors.Is(err, runtime.ErrRestored) {
		t.Errorf("got %v", err)
	}
}

// The replica that leads while a rollout makes the release read-only was started without the flag.
func TestReadOnlyWithoutARestart(t *testing.T) {
	r := &restored{}
	halt := (&Options{}).halt(r)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Annotations = map[string]string{v1alpha1.AnnotationReadOnly: "true"}
	if r.follow(configuration); !errors.Is(halt.Err(), runtime.ErrReadOnly) {
		t.Errorf("read-only: got %v", halt.Err())
	}
	configuration.Annotations = nil
	if r.follow(configuration); halt.Err() != nil {
		t.Errorf("no longer read-only: got %v", halt.Err())
	}
}
