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

// The source in reports, and the field owner of our writes.
const source, fieldOwner = "sallyport", "sallyport"

// The labels by which reports are found.
const (
	// managedByLabel has the value sallyport on every report.
	managedByLabel = "app.kubernetes.io/managed-by"
	// policyLabel has the name of the policy.
	policyLabel = "sallyport.dev/policy"
)

var (
	// ErrNotServed means that the cluster does not serve the report kinds.
	ErrNotServed = errors.New("the cluster does not have the kinds Report and ClusterReport of " + openreports.GroupVersion.String())
	// ErrChanged means that a report has changed since the book was opened, and may be newer than our results.
	ErrChanged = errors.New("reports were written by another client in the meantime")
)

// Writer writes reports.
type Writer struct {
	Client client.Client
	// Live reads without a cache.
	Live client.Reader
	Now  func() time.Time
}

// place is the kind and namespace of a report. A policy has at most one report in each.
type place struct {
	kind      string
	namespace string
}

// placeOf returns the place of the results of a namespace; "" is for cluster-scoped objects.
func placeOf(namespace string) place {
	if namespace == "" {
		return place{kind: "ClusterReport"}
	}
	return place{"Report", namespace}
}

func (p place) gvk() schema.GroupVersionKind {
	return schema.GroupVersion(openreports.GroupVersion).WithKind(p.kind)
}

func nameOf(policy string) string { return source + "-" + policy }

// Open reads which reports a policy has. It returns ErrNotServed if the cluster does not serve the report kinds.
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

// Served returns nil if the cluster serves the report kinds.
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

// Written is the result of writing a book.
type Written struct {
	// Reports and Results count what the reports contain; ReportsLeftOut and ResultsLeftOut what exceeds the limits.
	Reports, Results, ReportsLeftOut, ResultsLeftOut int
	// Taken are objects of other owners with the name of a report. Refused are the reports that the API server rejected.
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

// chosen returns the namespaces that need a report, "" for a ClusterReport, and counts what exceeds the limits.
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

// put creates or updates one report.
func (b *Book) put(ctx context.Context, at place, want *openreports.Report, written *Written) error {
	name := strings.TrimPrefix(at.namespace+"/", "/") + want.Name
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(at.gvk())
	err := b.writer.Live.Get(ctx, client.ObjectKeyFromObject(want), live)
	before, listed := b.before[at]
	switch {
	case apierrors.IsNotFound(err) && !listed:
		err = b.apply(ctx, want) // without force: another client may be creating it
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
		return nil // the namespace is terminating, or gone
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		written.Refused = append(written.Refused, fmt.Sprintf("%s %s: %v", at.kind, name, err)) // others may succeed
		return nil
	}
	return fmt.Errorf("writing %s %s: %w", at.kind, name, err)
}

// amend updates an existing report, if its content differs.
func (b *Book) amend(ctx context.Context, live *unstructured.Unstructured, want *openreports.Report) error {
	is, err := decode(live)
	if err == nil {
		keepTimes(is, want)
		if same(is, want) {
			return nil
		}
	} // a report that cannot be decoded is overwritten
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

// clear deletes the existing reports that are not wanted.
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
