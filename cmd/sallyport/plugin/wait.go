package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

const (
	// afterDeadline is how much longer than the operation's own deadline is waited for its end.
	afterDeadline = time.Minute
	// lookAgain is the pause before a watch that has ended, or could not begin, is begun again.
	lookAgain = time.Second
)

var (
	// errDeleted means that the operation was seen to go before its end.
	errDeleted = errors.New("was deleted before it had ended; what of it was in flight is withdrawn")
	// errGone means that it went while nobody could look.
	errGone = errors.New("is gone, and its end was not seen")
)

// watchesAtMost is how many operations are watched at once. Of a further one nothing is missed: it is watched from its creation on.
const watchesAtMost = 50

// await waits for operations, many at once, and tells whether all succeeded.
func (o *operate) await(ctx context.Context, c *cluster, operations []*v1alpha1.VirtualMachineOperation) bool {
	var all errgroup.Group
	all.SetLimit(watchesAtMost)
	for _, operation := range operations {
		all.Go(func() error {
			timeout := cmp.Or(o.timeout, operation.ActiveDeadline()+afterDeadline)
			w := &waiter{client: c, out: o.ErrOut, operation: operation, from: operation.ResourceVersion}
			err := w.wait(ctx, timeout)
			if err != nil {
				fmt.Fprintln(o.ErrOut, describe(err))
			}
			return err
		})
	}
	return all.Wait() == nil
}

// waiter waits for the end of one operation and tells what it waits for meanwhile.
type waiter struct {
	client    client.WithWatch
	out       io.Writer
	operation *v1alpha1.VirtualMachineOperation // as it was last seen
	// from is the resource version up to which all is known, and empty if that is too long ago. Watched from there on, nothing
	// is missed: neither the end of an operation that is deleted at once, nor what happened between two watches.
	from string
	told string
}

// wait returns nil only if the operation has succeeded.
func (w *waiter) wait(ctx context.Context, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		ended, err := w.look(limited)
		switch {
		case ended:
			return w.verdict(err)
		case ctx.Err() != nil:
			return w.goesOn("you stopped waiting for")
		case limited.Err() != nil:
			return w.goesOn(fmt.Sprintf("timed out after %s waiting for", timeout))
		case err != nil && !passing(err):
			return errors.Join(fmt.Errorf("looking at operation %s: %w", w.operation.Name, err), w.goesOn("cannot wait for"))
		case err != nil:
			w.tell(fmt.Sprintf("temporarily unreachable, retrying: %v", err))
		}
		select {
		case <-limited.Done():
		case <-time.After(lookAgain):
		}
	}
}

// look follows the changes of the operation, until it has ended or the watch has. A watch that has just run out is no error.
func (w *waiter) look(ctx context.Context) (ended bool, err error) {
	only := []client.ListOption{
		client.InNamespace(w.operation.Namespace), client.MatchingFields{metav1.ObjectNameField: w.operation.Name},
	}
	list := &v1alpha1.VirtualMachineOperationList{}
	if w.from == "" {
		if err := w.client.List(ctx, list, only...); err != nil {
			return false, err
		}
		if len(list.Items) == 0 || list.Items[0].UID != w.operation.UID {
			return true, errGone
		}
		w.operation, w.from = &list.Items[0], list.ResourceVersion
	}
	if w.see(w.operation) {
		return true, nil
	}
	err = changes(ctx, w.client, list, w.from, only, func(event watch.Event) (bool, error) {
		var err error
		ended, err = w.change(event)
		return ended, err
	})
	if err != nil {
		w.from = ""
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = nil
	}
	return ended, err
}

// change follows one event of the watch.
func (w *waiter) change(event watch.Event) (ended bool, err error) {
	operation, ok := event.Object.(*v1alpha1.VirtualMachineOperation)
	if !ok {
		return false, nil
	}
	w.from = operation.ResourceVersion
	if ended := w.see(operation); ended || event.Type != watch.Deleted {
		return ended, nil
	}
	return true, errDeleted
}

// see takes the operation as it is now, tells what is new, and whether it has ended.
func (w *waiter) see(operation *v1alpha1.VirtualMachineOperation) bool {
	w.operation = operation
	if !operation.Finished() {
		w.tell(state(operation))
	}
	return operation.Finished()
}

func (w *waiter) tell(text string) {
	if text == w.told {
		return
	}
	w.told = text
	fmt.Fprintf(w.out, "%s: %s\n", w.operation.Name, text)
}

// verdict says how the operation has ended.
func (w *waiter) verdict(err error) error {
	o := w.operation
	if err == nil {
		err = outcome(o)
	}
	if err != nil {
		return fmt.Errorf("%s %s of %s %w", called(o.Spec.Type, o.Spec.Force), o.Name, o.Spec.VirtualMachineName, err)
	}
	fmt.Fprintf(w.out, "%s: %s\n", o.Name, state(o))
	return nil
}

// goesOn says what becomes of an operation that nobody waits for any more.
func (w *waiter) goesOn(why string) error {
	o := w.operation
	return fmt.Errorf("%s %s, which goes on in the cluster (last seen %s)\nLook:      kubectl sallyport why svmop/%s -n %s\nTake back: kubectl delete svmop/%s -n %s",
		why, o.Name, state(o), o.Name, o.Namespace, o.Name, o.Namespace)
}

// outcome is how an operation that has ended did so; nil is success.
func outcome(o *v1alpha1.VirtualMachineOperation) error {
	var reason v1alpha1.ConditionReason
	if c := v1alpha1.ConditionCompleted.In(o.Status.Conditions); c != nil {
		reason = v1alpha1.ConditionReason(c.Reason)
	}
	switch {
	case o.Status.Phase == v1alpha1.OperationCompleted && reason == v1alpha1.ReasonSucceeded:
		return nil
	case o.Status.SupersededBy != nil, reason == v1alpha1.ReasonSuperseded:
		return fmt.Errorf("was superseded by %s", by(o.Status.SupersededBy))
	default:
		return fmt.Errorf("has not succeeded: %s", state(o))
	}
}

// by names who took the place of an operation.
func by(reference *v1alpha1.OperationReference) string {
	switch {
	case reference == nil:
		return "something else"
	case reference.Name == "":
		return "the deletion of the machine"
	}
	return "operation " + reference.Name
}

// state says how far an operation has come: "Pending, Waiting: waits until Stop web-1-stop-x7k2p is undone".
func state(o *v1alpha1.VirtualMachineOperation) string {
	text := string(cmp.Or(o.Status.Phase, v1alpha1.OperationPending))
	c := v1alpha1.ConditionCompleted.In(o.Status.Conditions)
	switch {
	case o.Status.Phase == "":
		text += ": waiting to be reconciled"
	case c != nil && c.Reason != text:
		text += ", " + c.Reason
	}
	if p := o.Status.Progress; p != nil && !o.Finished() {
		text += fmt.Sprintf(", %d %%", *p)
	}
	if c != nil && c.Message != "" {
		text += ": " + c.Message
	}
	return text
}
