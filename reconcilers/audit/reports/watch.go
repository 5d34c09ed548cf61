package reports

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resources are the kinds of reports as the API server serves them.
var resources = map[string]string{"Report": "reports", "ClusterReport": "clusterreports"}

// Edit is a report that another client has changed or deleted since it was written.
type Edit struct {
	// Policy is the policy that it is about.
	Policy string
	// Report is its kind, namespace and name.
	Report string
	// By is the field manager that wrote it last, "" if that is not known, as of one that is gone.
	By string
}

// ledger is what this process has written, by policy. Its lock is held while reports are written, so that nobody takes our own
// writes for somebody else's.
type ledger struct {
	mu      sync.Mutex
	written map[string]map[place]entry
}

// entry is a report as it was written.
type entry struct {
	uid             types.UID
	resourceVersion string
	digest          [sha256.Size]byte
}

// keep has the entries of a policy replaced, nil for none.
func (l *ledger) keep(policy string, entries map[place]entry) {
	if l.written == nil {
		l.written = map[string]map[place]entry{}
	}
	l.written[policy] = entries
	if entries == nil {
		delete(l.written, policy)
	}
}

func entryOf(live client.Object, said *openreports.Report) entry {
	return entry{live.GetUID(), live.GetResourceVersion(), digest(said)}
}

// digest is of all that a report says. What others add beside that may stay.
func digest(r *openreports.Report) [sha256.Size]byte {
	text, _ := json.Marshal([]any{ // texts and numbers can be encoded
		r.Source, r.Summary, r.Results, r.Configuration, r.Annotations[leftOutAnnotation], r.Annotations[incompleteAnnotation],
		r.Labels[managedByLabel], r.Labels[policyLabel],
	})
	return sha256.Sum256(text)
}

// Watch calls edited for each report that differs from what this process has written, until ctx ends. The kinds must be
// served.
func (w *Writer) Watch(ctx context.Context, edited func(Edit)) error {
	ours := labels.SelectorFromSet(labels.Set{managedByLabel: source}).String()
	for _, kind := range []string{"Report", "ClusterReport"} {
		informer := metadatainformer.NewFilteredMetadataInformer(w.Metadata, place{kind: kind}.gvk().GroupVersion().WithResource(resources[kind]),
			metav1.NamespaceAll, 0, nil, func(o *metav1.ListOptions) { o.LabelSelector = ours }).Informer()
		look := func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if report, ok := object.(*metav1.PartialObjectMetadata); ok {
				w.check(ctx, kind, report, edited)
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: look, UpdateFunc: func(_, now any) { look(now) }, DeleteFunc: look,
		})
		if err != nil {
			return fmt.Errorf("watching objects of kind %s: %w", kind, err)
		}
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return ctx.Err()
		}
		for _, missing := range w.missing(kind, informer.GetStore()) { // deleted before the watch began
			w.check(ctx, kind, missing, edited)
		}
	}
	return nil
}

// missing are the reports of a kind that were written and are not there.
func (w *Writer) missing(kind string, there cache.Store) (all []*metav1.PartialObjectMetadata) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for policy, entries := range w.ledger.written {
		for at := range entries {
			gone := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: at.namespace, Name: nameOf(policy), Labels: map[string]string{policyLabel: policy},
			}}
			if _, is, _ := there.Get(gone); at.kind == kind && !is {
				all = append(all, gone)
			}
		}
	}
	return all
}

// check looks at a report of which something was heard, and tells if it is not as it was written. What a policy's first audit by
// this process has not written yet that audit puts right.
func (w *Writer) check(ctx context.Context, kind string, heard *metav1.PartialObjectMetadata, edited func(Edit)) {
	policy, at := heard.Labels[policyLabel], place{kind, heard.Namespace}
	if heard.Name != nameOf(policy) {
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	entries, audited := w.ledger.written[policy]
	was, written := entries[at]
	if !audited || written && was.uid == heard.UID && was.resourceVersion == heard.ResourceVersion && heard.DeletionTimestamp == nil {
		return
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(at.gvk())
	err := w.Live.Get(ctx, client.ObjectKeyFromObject(heard), live)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsNotFound(err) && (!written || w.goes(ctx, at.namespace)):
		delete(entries, at)
		return
	case err == nil && live.GetUID() == was.uid && live.GetResourceVersion() == was.resourceVersion:
		return
	case err == nil && written:
		if is, undecodable := decode(live); undecodable == nil && is.UID == was.uid && digest(is) == was.digest {
			entries[at] = entryOf(live, is)
			return
		}
	}
	name := heard.Name
	if at.namespace != "" {
		name = at.namespace + "/" + name
	}
	edited(Edit{Policy: policy, Report: kind + " " + name, By: editor(live)})
}

// goes reports whether a namespace is gone or is being deleted, and its objects with it.
func (w *Writer) goes(ctx context.Context, name string) bool {
	if name == "" {
		return false
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := w.Live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}

// editor is who has written an object last, beside us.
func editor(live *unstructured.Unstructured) string {
	var last metav1.ManagedFieldsEntry
	for _, f := range live.GetManagedFields() {
		if f.Manager != fieldOwner && (last.Time == nil || f.Time != nil && last.Time.Before(f.Time)) {
			last = f
		}
	}
	return last.Manager
}
