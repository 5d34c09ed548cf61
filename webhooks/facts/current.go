package facts

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"sallyport.dev/sallyport/webhooks/engine"
)

// A live list of a kind that is also cached costs less than its objects: the metadata say which of them have changed since, and only these
// are read.

// mostByName is how many objects are read one by one. For more, the whole list is.
const mostByName = 16

// errManyChanged means that more than mostByName objects differ from the cache.
var errManyChanged = errors.New("too many objects differ from the cache")

// some reads those objects again that a query selects in the cache. It returns false if there are too many, or no cache.
func (l *live) some(ctx context.Context, q engine.Query) (f found, ok bool, err error) {
	of, err := l.cached(schema.FromAPIVersionAndKind(q.APIVersion, q.Kind))
	if err != nil {
		return found{}, false, nil
	}
	objects, err := selectList(of.GetIndexer(), q)
	if err != nil || len(objects) > mostByName { // the error is that of an index that only another policy needs
		return found{}, false, nil
	}
	f.objects, err = l.again(ctx, objects, q)
	f.part = q.Part
	return f, true, err
}

// again reads objects by their names, and returns those that the queries select now.
func (l *live) again(ctx context.Context, objects []*object, queries ...engine.Query) (now []*object, err error) {
	for _, o := range objects {
		one, err := get(ctx, l.client, engine.Query{
			APIVersion: queries[0].APIVersion, Kind: queries[0].Kind, Namespace: o.namespace, Name: o.name,
		})
		if err != nil {
			return nil, err
		}
		for _, o := range one.objects {
			selected := true
			for _, q := range queries {
				selected = selected && o.selected(q)
			}
			if selected {
				now = append(now, o.reduced(queries[0].Part))
			}
		}
	}
	return now, nil
}

// compare keeps the objects of a page of metadata that the cache has in the same version, and notes the others.
func (all *listing) compare(page []metav1.PartialObjectMetadata) error {
	for i := range page {
		is := &page[i]
		cached, there, err := all.cache.GetByKey(toolscache.ObjectName{Namespace: is.Namespace, Name: is.Name}.String())
		if err != nil {
			return err
		}
		if !there || cached.(*object).uid != is.UID || cached.(*object).resourceVersion != is.ResourceVersion {
			if all.changed = append(all.changed, &object{namespace: is.Namespace, name: is.Name}); len(all.changed) > mostByName {
				return errManyChanged
			}
		} else if o := cached.(*object); o.selected(all.left) {
			all.objects = append(all.objects, o.reduced(all.part))
		}
	}
	return nil
}
