package manager

import (
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

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
