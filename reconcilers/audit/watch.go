package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What changes after an audit is judged when it changes, object by object, and told when Settle has passed. The watches begin where the
// lists of the audit began, and store no object: what is sent is judged, and all that is kept is what was found. While one is judged the
// next waits, in the end at the API server. A watch that has fallen too far behind ends, and everything is looked at again.

// lostPause is how long after the end of a watch everything is looked at again.
const lostPause = 20 * time.Second

// watcherOf watches objects of a kind.
type watcherOf struct {
	client.WithWatch
	list func() client.ObjectList
}

// WatchWithContext begins a watch.
func (w watcherOf) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.Watch(ctx, w.list(), &client.ListOptions{Raw: &options})
}

// watch judges the objects of a kind that change after a version.
func (f *findings) watch(k *kind, version string) {
	list := func() client.ObjectList {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(k.gvk)
		return l
	}
	f.hear(k.GroupResource().String(), version, list, func(e watch.Event) {
		object, is := e.Object.(*unstructured.Unstructured)
		switch {
		case !is:
		case e.Type == watch.Deleted:
			f.forget(k, object, false)
		default:
			_ = f.look(f.watching, k, object, false) // an error means that the watch has ended
		}
	})
}

// watchNamespaces has the objects of namespaces looked at again whose labels have changed, if the policy selects by them.
func (f *findings) watchNamespaces(ctx context.Context, policy *v1alpha1.RegoPolicy) error {
	if f.Watcher == nil || policy.Spec.Match.NamespaceSelector == nil && len(policy.Spec.NamespaceModes) == 0 {
		return nil
	}
	metadata := func() client.ObjectList {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		return l
	}
	all := metadata().(*metav1.PartialObjectMetadataList)
	switch err := f.Live.List(ctx, all); {
	case apierrors.IsForbidden(err):
		f.blind("namespaces", err)
		return nil
	case err != nil:
		return fmt.Errorf("listing namespaces: %w", err)
	}
	f.labels = make(map[string]string, len(all.Items))
	for i := range all.Items {
		f.labels[all.Items[i].Name] = labels.Set(all.Items[i].Labels).String()
	}
	f.hear("namespaces", all.ResourceVersion, metadata, func(e watch.Event) {
		namespace, is := e.Object.(*metav1.PartialObjectMetadata)
		if !is {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if now := labels.Set(namespace.Labels).String(); e.Type == watch.Deleted {
			delete(f.labels, namespace.Name)
		} else if was, known := f.labels[namespace.Name]; !known || was != now {
			f.labels[namespace.Name] = now
			if f.namespaces == nil {
				f.namespaces = map[string]bool{}
			}
			f.namespaces[namespace.Name] = true
			f.changed()
		}
	})
	return nil
}

// hear gives what changes to take, until the findings are of no use any more.
func (f *findings) hear(resource, version string, list func() client.ObjectList, take func(watch.Event)) {
	if f.Watcher == nil {
		return
	}
	w, err := watchtools.NewRetryWatcherWithContext(f.watching, version, watcherOf{f.Watcher, list})
	if err != nil {
		f.blind(resource, err)
		return
	}
	f.open.Go(func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if e.Type != watch.Error {
				take(e)
				continue
			}
			if err := apierrors.FromObject(e.Object); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				f.blind(resource, err)
				return
			}
		}
		if f.watching.Err() == nil {
			f.lose(resource)
		}
	})
}

// blind notes that changes of a resource are not seen.
func (f *findings) blind(resource string, err error) {
	text := fmt.Sprintf("changes to %s are seen only by the next audit: %v", resource, err)
	if apierrors.IsForbidden(err) {
		text = fmt.Sprintf("changes to %[1]s are seen only by the next audit: Sallyport may not watch them; to grant access, add {%[1]s: true} to the chart value rbac.reads", resource)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.unwatched, text) {
		f.unwatched = append(f.unwatched, text)
		f.changed()
	}
}

// lose has everything looked at again, because changes of a resource may have been missed.
func (f *findings) lose(resource string) {
	log.FromContext(f.watching).Info("a watch fell too far behind: all objects are audited again", "RegoPolicy", f.policy, "resource", resource)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lost {
		f.lost = true
		time.AfterFunc(lostPause, f.call)
	}
}

// changed has what has changed told, after Settle. The lock is held.
func (f *findings) changed() {
	if !f.due {
		f.due = true
		time.AfterFunc(f.Settle, f.call)
	}
}

// call has the policy looked at.
func (f *findings) call() {
	f.mu.Lock()
	f.due = true // also if somebody else had it told meanwhile: else everything would be looked at again
	f.mu.Unlock()
	f.send(f.watching, f.Reconciler.due, f.policy)
}

// stop ends the watches.
func (f *findings) stop() {
	f.end()
	f.open.Wait()
}

// follows gives the findings of the last audit if all that there is to do is to tell what has changed since.
func (r *Reconciler) follows(policy string, of state) *findings {
	r.mu.Lock()
	f := r.results[policy].findings
	r.mu.Unlock()
	if f == nil || f.watching.Err() != nil || f.of != of || r.Interval > 0 && f.wait() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.due || f.lost {
		return nil
	}
	return f
}

// follow takes what has changed since the audit.
func (f *findings) follow(ctx context.Context) error {
	f.mu.Lock()
	namespaces := slices.Sorted(maps.Keys(f.namespaces))
	f.namespaces, f.due = nil, false
	f.mu.Unlock()
	for _, namespace := range namespaces {
		for _, k := range f.kinds {
			mapping, err := f.Mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version)
			if err != nil {
				return fmt.Errorf("finding %s: %w", k.GroupResource(), err)
			}
			if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
				continue
			}
			if err := f.each(ctx, k, namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait is how long it is until everything is to be looked at again, 0 if that is so now or never.
func (f *findings) wait() time.Duration {
	whole := f.Interval
	if f.ended || f.barred { // which may be over soon
		whole = min(whole, lastRetry)
	}
	return max(0, whole-f.Now().Sub(f.began))
}
