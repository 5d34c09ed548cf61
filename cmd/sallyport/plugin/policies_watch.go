package plugin

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// follow shows the policies of a list and then each that changes, until it is interrupted. What changes between two watches is seen.
func (c *cluster) follow(ctx context.Context, list *v1alpha1.RegoPolicyList, only []client.ListOption, show func(*v1alpha1.RegoPolicy) error) error {
	for i := range list.Items {
		if err := show(&list.Items[i]); err != nil {
			return err
		}
	}
	from := list.ResourceVersion
	for ctx.Err() == nil {
		err := changes(ctx, c, &v1alpha1.RegoPolicyList{}, from, only, func(event watch.Event) (bool, error) {
			policy, is := event.Object.(*v1alpha1.RegoPolicy)
			if !is {
				return false, nil
			}
			from = policy.ResourceVersion
			policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(policyKind))
			return false, show(policy)
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("watching RegoPolicies: %w", err)
		}
	}
	return nil
}

// changes has each change of objects after a version seen, until see says that it was the last, or the watch has ended.
func changes(ctx context.Context, c client.WithWatch, list client.ObjectList, from string, only []client.ListOption, see watchtools.ConditionFunc) error {
	w, err := c.Watch(ctx, list, append(only, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})...)
	if err != nil {
		return err
	}
	_, err = watchtools.UntilWithoutRetry(ctx, w, func(event watch.Event) (bool, error) {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		return see(event)
	})
	if errors.Is(err, watchtools.ErrWatchClosed) {
		return nil
	}
	return err
}

// watch shows policies as they change: rows of the table, or objects in the format that was asked for.
func (l *listing) watch(ctx context.Context, c *cluster, list *v1alpha1.RegoPolicyList, only []client.ListOption) error {
	if !l.table() {
		printer, err := l.printing.ToPrinter()
		if err != nil {
			return err
		}
		return c.follow(ctx, list, only, func(policy *v1alpha1.RegoPolicy) error {
			return printer.PrintObj(policy, l.raw)
		})
	}
	r := &policiesReport{wide: l.wide()}
	table := printers.GetNewTabWriter(l.Out) // it remembers how wide the columns are
	if !l.noHeaders {
		r.header(&page{table: table, now: l.now()})
	}
	return c.follow(ctx, list, only, func(policy *v1alpha1.RegoPolicy) error {
		r.row(&page{table: table, now: l.now()}, policy)
		return table.Flush()
	})
}
