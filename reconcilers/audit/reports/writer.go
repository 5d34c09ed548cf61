package reports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	openreports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Who reports, in the reports and to the API server.
const source, fieldOwner = "sallyport", "sallyport"

// The labels by which reports are found.
const (
	// managedByLabel has the value sallyport on every report.
	managedByLabel = "app.kubernetes.io/managed-by"
	// policyLabel is the name of the policy.
	policyLabel = "sallyport.dev/policy"
)

var (
	// ErrNotServed says that the cluster does not have the kinds of reports.
	ErrNotServed = errors.New("the cluster does not have the kinds Report and ClusterReport of " + openreports.GroupVersion.String())
	// ErrChanged says that a report has changed since the book was opened: what was found may be older than what it says.
	ErrChanged = errors.New("reports were written by another client in the meantime")
)

// Writer writes reports.
type Writer struct {
	// Client writes.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
}

// place is where a report is; of a policy there is one in each.
type place struct {
	kind      string
	namespace string
}

// placeOf is where the results of a namespace are reported, "" for objects that are in none.
func placeOf(namespace string) place {
	if namespace == "" {
		return place{kind: "ClusterReport"}
	}
	return place{"Report", namespace}
}

func (p place) gvk() schema.GroupVersionKind {
	return schema.GroupVersion(openreports.GroupVersion).WithKind(p.kind)
}

// nameOf is what the reports of a policy are called.
func nameOf(policy string) string { return source + "-" + policy }

// Open begins a book of a policy with the reports as they are. It is ErrNotServed where there cannot be any.
func (w *Writer) Open(ctx context.Context, policy string) (*Book, error) {
	b := &Book{writer: w, policy: policy, before: map[place]metav1.ObjectMeta{}}
	for _, kind := range []string{"Report", "ClusterReport"} {
		there, err := w.list(ctx, kind, client.MatchingLabels{managedByLabel: source, policyLabel: policy})
		if err != nil {
			return nil, err
		}
		for i := range there.Items {
			if found := &there.Items[i]; found.Name == nameOf(policy) {
				b.before[place{kind, found.Namespace}] = metav1.ObjectMeta{UID: found.UID, ResourceVersion: found.ResourceVersion}
			}
		}
	}
	return b, nil
}

// Served is nil if the cluster has the kinds of reports.
func (w *Writer) Served(ctx context.Context) error {
	for _, kind := range []string{"Report", "ClusterReport"} {
		if _, err := w.list(ctx, kind, client.Limit(1)); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) list(ctx context.Context, kind string, options ...client.ListOption) (*metav1.PartialObjectMetadataList, error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(place{kind: kind}.gvk())
	err := w.Live.List(ctx, all, options...)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, ErrNotServed
	case err != nil:
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind, err)
	}
	return all, nil
}

// Remove deletes the reports of a policy.
func (w *Writer) Remove(ctx context.Context, policy string) error {
	b, err := w.Open(ctx, policy)
	switch {
	case errors.Is(err, ErrNotServed):
		return nil
	case err != nil:
		return err
	}
	return b.clear(ctx, nil)
}

// Written tells what became of a book.
type Written struct {
	// Reports and Results are how many there are, and the others how many are left out because there are too many.
	Reports, Results, ReportsLeftOut, ResultsLeftOut int
	// Taken are objects of somebody else's that have the name of a report, Refused what the API server did not let us write.
	Taken, Refused []string
}

// Write applies the results to the reports, also over what other clients have edited, and deletes the reports without results. A report
// that has its results already is not written. incomplete is why not all objects were evaluated, "" if they were.
func (b *Book) Write(ctx context.Context, policy *v1alpha1.RegoPolicy, p *Page, incomplete string) (*Written, error) {
	written, wanted := &Written{}, map[place]bool{}
	for _, namespace := range p.chosen(written) {
		at := placeOf(namespace)
		wanted[at] = true
		if err := b.put(ctx, at, b.report(policy, at, p.of(namespace), incomplete), written); err != nil {
			return nil, err
		}
	}
	return written, b.clear(ctx, wanted)
}

// chosen gives the namespaces in which there is to be a report, "" for none, and notes what is left out.
func (p *Page) chosen(written *Written) (namespaces []string) {
	for _, namespace := range slices.Sorted(maps.Keys(p.tallies)) {
		switch t := p.of(namespace); {
		case t.found() == 0:
		case len(namespaces) == maxReports:
			written.ReportsLeftOut++
			written.ResultsLeftOut += t.found()
		default:
			namespaces = append(namespaces, namespace)
			written.ResultsLeftOut += t.found() - len(t.results)
		}
	}
	return namespaces
}

// put has a report say what it should.
func (b *Book) put(ctx context.Context, at place, want *openreports.Report, written *Written) error {
	name := strings.TrimPrefix(at.namespace+"/", "/") + want.Name
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(at.gvk())
	err := b.writer.Live.Get(ctx, client.ObjectKeyFromObject(want), live)
	before, listed := b.before[at]
	switch {
	case apierrors.IsNotFound(err) && !listed:
		err = b.apply(ctx, want) // not by force: somebody else may be making one
	case apierrors.IsNotFound(err):
		return ErrChanged
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", at.kind, name, err)
	case live.GetLabels()[managedByLabel] != source || live.GetLabels()[policyLabel] != b.policy:
		written.Taken = append(written.Taken, at.kind+" "+name)
		return nil
	case !listed || live.GetResourceVersion() != before.ResourceVersion:
		return ErrChanged
	default:
		err = b.amend(ctx, live, want)
	}
	switch {
	case err == nil:
		written.Reports++
		written.Results += len(want.Results)
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && listed:
		return ErrChanged
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace goes, and its objects with it
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		written.Refused = append(written.Refused, fmt.Sprintf("%s %s: %v", at.kind, name, err)) // others may go in
		return nil
	}
	return fmt.Errorf("writing %s %s: %w", at.kind, name, err)
}

// amend writes an existing report, unless it is what it should be.
func (b *Book) amend(ctx context.Context, live *unstructured.Unstructured, want *openreports.Report) error {
	is, err := decode(live)
	if err == nil {
		keepTimes(is, want)
		if same(is, want) {
			return nil
		}
	} // else it cannot be ours, and is written as a whole
	want.UID, want.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	return b.apply(ctx, want, client.ForceOwnership)
}

func (b *Book) apply(ctx context.Context, want *openreports.Report, options ...client.ApplyOption) error {
	encoded, err := encode(want)
	if err != nil {
		return err
	}
	return b.writer.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(encoded), append(options, client.FieldOwner(fieldOwner))...)
}

// clear deletes the reports that there were and that are not wanted.
func (b *Book) clear(ctx context.Context, wanted map[place]bool) error {
	for at, before := range b.before {
		if wanted[at] {
			continue
		}
		gone := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: nameOf(b.policy)}}
		gone.SetGroupVersionKind(at.gvk())
		err := b.writer.Client.Delete(ctx, gone, client.Preconditions{UID: &before.UID, ResourceVersion: &before.ResourceVersion})
		switch {
		case apierrors.IsConflict(err):
			return ErrChanged
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting %s %s in namespace %q: %w", at.kind, gone.Name, at.namespace, err)
		}
	}
	return nil
}
