package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// givePoll is the interval at which VirtualMachines are read until their machines are released.
const givePoll = 500 * time.Millisecond

// adopted returns the VirtualMachines whose machines Sallyport has adopted, and has not released.
func (j *releasing) adopted(ctx context.Context) (found []v1alpha1.VirtualMachine, err error) {
	if !slices.ContainsFunc(j.kinds, func(k releasable) bool { return k.Resource == machines }) {
		return nil, nil
	}
	err = paged(ctx, machines, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := &v1alpha1.VirtualMachineList{}
		return list, j.List(ctx, list, &client.ListOptions{Limit: o.Limit, Continue: o.Continue, Raw: &o})
	}, func(m *v1alpha1.VirtualMachine) {
		if m.Spec.Adopts() && m.Status.InstanceID != "" && m.DeletionTimestamp == nil {
			found = append(found, *m)
		}
	})
	return found, err
}

// leaves reports whether adopted machines stay as they are.
func (j *releasing) leaves() bool { return j.keep || j.installed.Replicas == 0 }

// giveBack has the manager release all adopted machines, by the run policy Observe, and waits for it.
func (j *releasing) giveBack(ctx context.Context) error {
	if j.leaves() || len(j.given) == 0 {
		return nil
	}
	for i := range j.given {
		m := &j.given[i]
		patch := client.RawPatch(client.Merge.Type(), fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"runPolicy":%q}}`, m.UID, v1alpha1.RunPolicyObserve))
		if err := cli.Writer(j, j.dryRun).Patch(ctx, m.DeepCopy(), patch, client.FieldOwner(cli.FieldManager)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("setting spec.runPolicy of VirtualMachine %s/%s to Observe: %w", m.Namespace, m.Name, err)
		}
	}
	if j.dryRun == cli.DryRunNone {
		if err := j.awaitGiven(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(j.Out, "Released adopted machines: %d%s\n", len(j.given), cli.DryRunSuffix[j.dryRun])
	return nil
}

// awaitGiven waits until no machine is adopted.
func (j *releasing) awaitGiven(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	for {
		left, err := j.adopted(limited)
		switch {
		case err == nil && len(left) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted while waiting for the release of %d adopted machines", len(left))
		case err != nil && limited.Err() == nil:
			return err
		case limited.Err() != nil:
			return j.stillAdopted(ctx)
		}
		select {
		case <-limited.Done():
		case <-time.After(givePoll):
		}
	}
}

// stillAdopted is the error for machines that were not released in time, with what the first of them waits for.
func (j *releasing) stillAdopted(ctx context.Context) error {
	left, err := j.adopted(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	m, why := &left[0], ""
	if c := meta.FindStatusCondition(m.Status.Conditions, string(v1alpha1.ConditionReady)); c != nil && c.Message != "" {
		why = ": " + c.Message
	}
	return fmt.Errorf("timed out after %s waiting for the release of %d adopted machines, such as VirtualMachine %s/%s%s; to leave them as they are, use --keep-adopted",
		j.timeout, len(left), m.Namespace, m.Name, why)
}
