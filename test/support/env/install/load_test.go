package install

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answering is an API server that gives one answer to each creation.
type answering struct {
	client.Client
	answer func(client.Object) error
}

func (a answering) Create(_ context.Context, o client.Object, options ...client.CreateOption) error {
	all := client.CreateOptions{}
	all.ApplyOptions(options)
	if len(all.DryRun) == 0 {
		return errors.New("this would leave something behind")
	}
	return a.answer(o)
}

func TestLoad(t *testing.T) {
	var state atomic.Value
	state.Store("open")
	admits := answering{answer: func(o client.Object) error { o.SetFinalizers([]string{"x"}); return nil }}
	changes := answering{answer: func(client.Object) error {
		switch state.Load() {
		case "closed":
			return refusal("it is closed")
		case "gone":
			return errors.New("connection refused")
		case "unjudged":
			return apierrors.NewInternalError(errors.New("failed calling webhook: no endpoints"))
		}
		return nil
	}}
	made := func() *unstructured.Unstructured { return object("VirtualMachine", map[string]any{}) }
	load := newLoad(t.Context(), []client.Client{admits, changes}, []Question{
		{Name: "a", Object: made, Changed: func(o *unstructured.Unstructured) bool { return len(o.GetFinalizers()) == 1 }},
		{Name: "b", Object: made},
	})
	defer load.End()
	usual := Answers{"a": {Admitted}, "b": {Admitted}}
	next := func() []Reply {
		t.Helper()
		replies, err := load.More(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		return replies
	}
	if err := usual.Check(next()); err != nil {
		t.Error(err)
	}

	mark := load.Now()
	state.Store("closed")
	closed := next()
	if err := usual.With("b", "it is closed").Check(closed); err != nil {
		t.Error(err)
	}
	if err := usual.Check(closed); err == nil || !strings.Contains(err.Error(), `b was answered "it is closed", want one of ["(admitted)"]`) {
		t.Errorf("a refusal where none may be: %v", err)
	}
	if err := usual.With("b", Admitted, "closed").Check(load.Since(mark, time.Time{})); err != nil {
		t.Errorf("during the change: %v", err)
	}
	for lost, want := range map[string]string{"gone": "connection refused", "unjudged": "no endpoints"} {
		state.Store(lost)
		if err := usual.With("b", Admitted, "closed", want).Check(next()); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "replies were wrong") {
			t.Errorf("%s: a request that nobody decided: %v", lost, err)
		}
	}

	if all := load.End(); all < 24 || all != load.Now() {
		t.Errorf("%d replies at the end, then %d", all, load.Now())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := load.More(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("more of a load that has ended: %v", err)
	}
}

// refusal is the error of a request that a webhook has denied.
func refusal(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: `admission webhook "x" denied the request: ` + message,
	}}
}

// Who is admitted without that the mutating webhook has done its part was not judged.
func TestLoadOfUnchanged(t *testing.T) {
	admits := answering{answer: func(client.Object) error { return nil }}
	load := newLoad(t.Context(), []client.Client{admits}, []Question{{
		Name: "a", Object: func() *unstructured.Unstructured { return object("VirtualMachine", nil) },
		Changed: func(*unstructured.Unstructured) bool { return false },
	}})
	defer load.End()
	replies, err := load.More(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Answers{"a": {Admitted}}).Check(replies); err == nil || !strings.Contains(err.Error(), "mutating webhook") {
		t.Errorf("nobody has changed it: %v", err)
	}
}
