package operate

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
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

const (
	// afterDeadline is how much longer than the deadline of the operation --wait waits.
	afterDeadline = time.Minute
	// watchPause is the pause before a watch restarts.
	watchPause = time.Second
)

var (
	// errDeleted means that the operation was deleted before it finished.
	errDeleted = errors.New("was deleted before it finished; Sallyport undoes what it started")
	// errGone means that the operation was deleted while the watch was interrupted.
	errGone = errors.New("no longer exists; its result is unknown")
)

// watchesAtMost is how many operations are watched at once. The watch of a further one starts at its creation, so nothing is missed.
const watchesAtMost = 50

// await waits for operations concurrently, and reports whether all of them succeeded.
func (o *operate) await(ctx context.Context, c *cli.Cluster, operations []*v1alpha1.VirtualMachineOperation) bool {
	var all errgroup.Group
	all.SetLimit(watchesAtMost)
	for _, operation := range operations {
		all.Go(func() error {
			timeout := cmp.Or(o.timeout, operation.ActiveDeadline()+afterDeadline)
			w := &waiter{client: c, out: o.ErrOut, operation: operation, from: operation.ResourceVersion}
			err := w.wait(ctx, timeout)
			if err != nil {
				fmt.Fprintln(o.ErrOut, cli.Describe(err))
			}
			return err
		})
	}
	return all.Wait() == nil
}

// waiter waits until one operation finishes, and prints its state meanwhile.
type waiter struct {
	client    client.WithWatch
	out       io.Writer
	operation *v1alpha1.VirtualMachineOperation // in its last known state
	// from is the resource version to watch from, so that no event is missed between two watches. It is empty if that version has
	// expired.
	from    string
	printed string
}

// wait returns nil only if the operation succeeded.
func (w *waiter) wait(ctx context.Context, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		ended, err := w.watch(limited)
		switch {
		case ended:
			return w.result(err)
		case ctx.Err() != nil:
			return w.goesOn("stopped waiting for")
		case limited.Err() != nil:
			return w.goesOn(fmt.Sprintf("timed out after %s waiting for", timeout))
		case err != nil && !cli.Temporary(err):
			return errors.Join(fmt.Errorf("reading operation %s: %w", w.operation.Name, err), w.goesOn("cannot wait for"))
		case err != nil:
			w.print(fmt.Sprintf("temporarily unreachable, retrying: %v", err))
		}
		select {
		case <-limited.Done():
		case <-time.After(watchPause):
		}
	}
}

// watch follows the operation until it finishes or the watch ends. An expired watch is not an error.
func (w *waiter) watch(ctx context.Context) (ended bool, err error) {
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
	changes, err := w.client.Watch(ctx, list, append(only, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: w.from}})...)
	if err == nil {
		_, err = watchtools.UntilWithoutRetry(ctx, changes, func(event watch.Event) (_ bool, err error) {
			if event.Type == watch.Error {
				return false, apierrors.FromObject(event.Object)
			}
			ended, err = w.change(event)
			return ended, err
		})
	}
	if errors.Is(err, watchtools.ErrWatchClosed) {
		return ended, nil
	}
	if err != nil {
		w.from = ""
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		err = nil
	}
	return ended, err
}

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

// see records the operation, prints its state if it changed, and reports whether it has finished.
func (w *waiter) see(operation *v1alpha1.VirtualMachineOperation) bool {
	w.operation = operation
	if !operation.Finished() {
		w.print(cli.State(operation))
	}
	return operation.Finished()
}

func (w *waiter) print(text string) {
	if text == w.printed {
		return
	}
	w.printed = text
	fmt.Fprintf(w.out, "%s: %s\n", w.operation.Name, text)
}

// result returns an error unless the operation succeeded, and prints a success.
func (w *waiter) result(err error) error {
	o := w.operation
	if err == nil {
		err = outcome(o)
	}
	if err != nil {
		return fmt.Errorf("%s %s of %s %w", cli.OperationText(o.Spec.Type, o.Spec.Force), o.Name, o.Spec.VirtualMachineName, err)
	}
	fmt.Fprintf(w.out, "%s: %s\n", o.Name, cli.State(o))
	return nil
}

// goesOn is the error if the command stops waiting before the operation finishes.
func (w *waiter) goesOn(why string) error {
	o := w.operation
	object := commands.Object("svmop", o.Namespace, o.Name)
	return fmt.Errorf("%s %s, which continues in the cluster (last state: %s)\nStatus: %s\nCancel: %s", why, o.Name, cli.State(o),
		commands.Line(append([]string{"kubectl", "sallyport", "why"}, object...)...), commands.Line(append([]string{"kubectl", "delete"}, object...)...))
}

// outcome is the result of a finished operation. It is nil on success.
func outcome(o *v1alpha1.VirtualMachineOperation) error {
	var reason v1alpha1.ConditionReason
	if c := v1alpha1.ConditionCompleted.In(o.Status.Conditions); c != nil {
		reason = v1alpha1.ConditionReason(c.Reason)
	}
	switch {
	case o.Status.Phase == v1alpha1.OperationCompleted && reason == v1alpha1.ReasonSucceeded:
		return nil
	case o.Status.SupersededBy != nil, reason == v1alpha1.ReasonSuperseded:
		return fmt.Errorf("was superseded by %s", cli.Superseder(o.Status.SupersededBy))
	default:
		return fmt.Errorf("did not succeed: %s", cli.State(o))
	}
}
