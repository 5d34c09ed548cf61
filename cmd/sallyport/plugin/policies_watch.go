package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
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
		changes, err := c.Watch(ctx, &v1alpha1.RegoPolicyList{}, append(only, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})...)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for event := range changes.ResultChan() {
			policy, is := event.Object.(*v1alpha1.RegoPolicy)
			switch {
			case event.Type == watch.Error:
				changes.Stop()
				return ignoreEnd(ctx, fmt.Errorf("watching RegoPolicies: %w", apierrors.FromObject(event.Object)))
			case is:
				from = policy.ResourceVersion
				policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(policyKind))
				err = show(policy)
			}
			if err != nil {
				changes.Stop()
				return err
			}
		}
	}
	return nil
}

// ignoreEnd is no error if somebody has interrupted it.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
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
			var object runtime.Object = policy
			return printer.PrintObj(object, l.raw)
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
