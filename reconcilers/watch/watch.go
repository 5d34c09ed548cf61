// Package watch sets up the watches of reconcilers: caches of their own, indexes, and requests for objects that refer to others.
package watch

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Cache adds a cache to the manager, for a part of the objects of a kind. It runs in every replica.
func Cache(mgr ctrl.Manager, o cache.Options) (cache.Cache, error) {
	c, err := newCache(mgr, o)
	if err == nil {
		err = mgr.Add(c)
	}
	return c, err
}

// LeaderCache is Cache for the leader only.
func LeaderCache(mgr ctrl.Manager, o cache.Options) (cache.Cache, error) {
	c, err := newCache(mgr, o)
	if err == nil {
		err = mgr.Add(onlyLeading{c})
	}
	return c, err
}

func newCache(mgr ctrl.Manager, o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	o.DefaultTransform = cache.TransformStripManagedFields()
	return cache.New(mgr.GetConfig(), o)
}

type onlyLeading struct{ cache.Cache }

func (onlyLeading) NeedLeaderElection() bool { return true }

// Index adds indexes of a kind to the cache of the manager, by their names.
func Index(mgr ctrl.Manager, of client.Object, indexes map[string]client.IndexerFunc) error {
	for name, keys := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), of, name, keys); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", of, name, err)
		}
	}
	return nil
}

// Requests returns requests for the objects of a list that the options select in the cache. An object that is not indexed yet is reconciled
// when the write that indexes it arrives, which is later than the change.
func Requests(ctx context.Context, c client.Reader, list client.ObjectList, options ...client.ListOption) (requests []reconcile.Request) {
	if err := c.List(ctx, list, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the objects that a change affects", "list", fmt.Sprintf("%T", list))
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // the items of a typed list are objects
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return requests
}
