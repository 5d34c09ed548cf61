package release

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

const (
	// ourFinalizers is the prefix of Sallyport's finalizers.
	ourFinalizers = v1alpha1.GroupName + "/"
	// machines is the resource whose objects represent machines outside of the cluster.
	machines = "virtualmachines"
	// passes limits the passes over all objects if finalizers of Sallyport keep reappearing, passPause is the pause between two.
	passes, passPause = 10, time.Second
	// together limits concurrent patches, and stripQPS patches per second.
	together, stripQPS = 16, 200
	// shownErrors limits the objects that an error names.
	shownErrors = 10
)

type releasable struct {
	schema.GroupVersionResource
	// singular is the singular name of the resource.
	singular string
	// total counts its objects, held those with a finalizer of Sallyport.
	total, held int
	// released are the objects whose finalizers were removed.
	released map[types.UID]bool
}

// discover returns the kinds of Sallyport's group that the cluster serves, of any release, each in the preferred version. It requires only
// the verb list: while a CustomResourceDefinition is being deleted, discovery no longer reports patch, although patches still work.
func (j *releasing) discover() ([]releasable, error) {
	asked, err := discovery.NewDiscoveryClientForConfig(j.Config)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(asked)
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	ours := func(version schema.GroupVersion) bool { return version.Group == v1alpha1.GroupName }
	if err != nil && (!partly || slices.ContainsFunc(slices.Collect(maps.Keys(failed)), ours)) {
		return nil, fmt.Errorf("finding Sallyport's kinds: %w", err)
	}
	var found []releasable
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !ours(version) {
			continue // errors of other groups do not matter here
		}
		for _, r := range list.APIResources {
			found = append(found, releasable{
				GroupVersionResource: version.WithResource(r.Name), singular: cmp.Or(r.SingularName, r.Name), released: map[types.UID]bool{},
			})
		}
	}
	slices.SortFunc(found, func(a, b releasable) int { return strings.Compare(a.Resource, b.Resource) })
	return found, nil
}

func (j *releasing) objects() (metadata.Interface, error) {
	config := rest.CopyConfig(j.Config)
	config.QPS, config.Burst = stripQPS, 2*stripQPS
	return metadata.NewForConfig(config)
}

// each calls do for each object of a kind, sequentially. A kind that is no longer served has none.
func each(ctx context.Context, c metadata.Interface, k *releasable, do func(*metav1.PartialObjectMetadata)) error {
	return paged(ctx, k.Resource, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Resource(k.GroupVersionResource).List(ctx, o)
	}, do)
}

func paged[T runtime.Object](ctx context.Context, what string, list pager.ListPageFunc, do func(T)) error {
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if o, ok := object.(T); ok {
			do(o)
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing %s: %w", what, err)
	}
	return nil
}

func (j *releasing) survey(ctx context.Context, k *releasable) error {
	c, err := j.objects()
	if err != nil {
		return err
	}
	return each(ctx, c, k, func(o *metav1.PartialObjectMetadata) {
		k.total++
		if _, ours := without(o.Finalizers); ours {
			k.held++
		}
	})
}

// without returns the finalizers of others, and reports whether there are finalizers of Sallyport.
func without(finalizers []string) (rest []string, ours bool) {
	for _, f := range finalizers {
		if strings.HasPrefix(f, ourFinalizers) {
			ours = true
		} else {
			rest = append(rest, f)
		}
	}
	return rest, ours
}

// unsettled is a machine with an operation or a deletion in progress.
type unsettled struct {
	machine, text string
}

// unsettled finds the machines that an operation holds, that are being undone, or that are to be removed.
func (j *releasing) unsettled(ctx context.Context) ([]unsettled, error) {
	if !slices.ContainsFunc(j.kinds, func(k releasable) bool { return k.Resource == machines }) {
		return nil, nil
	}
	var found []unsettled
	err := paged(ctx, machines, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := &v1alpha1.VirtualMachineList{}
		return list, j.List(ctx, list, &client.ListOptions{Limit: o.Limit, Continue: o.Continue, Raw: &o})
	}, func(m *v1alpha1.VirtualMachine) {
		if text := j.midst(m); text != "" {
			found = append(found, unsettled{m.Namespace + "/" + m.Name, text})
		}
	})
	return found, err
}

// midst describes the operations or the deletion in progress on a machine, if any.
func (j *releasing) midst(m *v1alpha1.VirtualMachine) string {
	p := &cli.Page{Now: j.Now()}
	var texts []string
	if a := m.Status.ActiveOperation; a != nil {
		texts = append(texts, "claimed by "+cli.HolderName(a.Type, a.Force, a.Origin, a.Name)+p.Since(a.ClaimedAt.Time))
	}
	for i := range m.Status.Undoing {
		u := &m.Status.Undoing[i]
		texts = append(texts, cli.HolderName(u.Type, u.Force, u.Origin, u.Name)+" is being undone")
	}
	if _, ours := without(m.Finalizers); ours && m.DeletionTimestamp != nil {
		texts = append(texts, "deletion requested "+p.Ago(m.DeletionTimestamp.Time)+" ago; its machine would stay on its runtime")
	}
	return strings.Join(texts, "; ")
}

// strip removes the finalizers of Sallyport from all objects, and repeats until there are none.
func (j *releasing) strip(ctx context.Context) error {
	c, err := j.objects()
	if err != nil {
		return err
	}
	var last error
	for pass := range passes {
		if pass > 1 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(passPause):
			}
		}
		s := &stripper{releasing: j, client: c}
		for i := range j.kinds {
			if err := s.kind(ctx, &j.kinds[i]); err != nil {
				return err
			}
		}
		if s.seen == 0 || s.failed > 0 || j.dryRun != cli.DryRunNone {
			return s.err()
		}
		last = s.passing
	}
	if last != nil {
		return last
	}
	return errors.New("finalizers keep reappearing; another controller re-adds them, possibly a manager outside of this cluster")
}

type stripper struct {
	*releasing
	client metadata.Interface

	mu      sync.Mutex
	seen    int     // objects with a finalizer of Sallyport
	failed  int     // objects with a permanent error
	errs    []error // the first permanent errors
	passing error   // the last temporary error
}

func (s *stripper) err() error {
	err := errors.Join(s.errs...)
	if more := s.failed - len(s.errs); more > 0 {
		err = fmt.Errorf("%w\nand similar errors for %d more objects", err, more)
	}
	return err
}

// kind removes the finalizers from the objects of one kind, several at a time.
func (s *stripper) kind(ctx context.Context, k *releasable) error {
	var all errgroup.Group
	all.SetLimit(together)
	k.total = 0
	err := each(ctx, s.client, k, func(o *metav1.PartialObjectMetadata) {
		k.total++
		rest, ours := without(o.Finalizers)
		if !ours || ctx.Err() != nil {
			return
		}
		all.Go(func() error {
			s.record(k, o, rest, s.patch(ctx, k, o, rest))
			return nil
		})
	})
	_ = all.Wait() // record has the errors
	return err
}

// patch removes finalizers from an object, unless it has changed since it was read. It changes nothing else, so that the API server calls no
// webhook.
func (s *stripper) patch(ctx context.Context, k *releasable, o *metav1.PartialObjectMetadata, rest []string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": rest},
	})
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: cli.FieldManager}
	if s.dryRun == cli.DryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = s.client.Resource(k.GroupVersionResource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, options)
	return err
}

func (s *stripper) record(k *releasable, o *metav1.PartialObjectMetadata, rest []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	switch {
	case err == nil:
		k.released[o.UID] = true
		if k.Resource == machines && o.DeletionTimestamp != nil && len(rest) == 0 {
			s.orphans = append(s.orphans, o.Namespace+"/"+o.Name)
		}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the next pass reads it again
	case cli.Temporary(err):
		s.passing = fmt.Errorf("%s %s/%s: %w", k.Resource, o.Namespace, o.Name, err)
	default:
		if s.failed++; len(s.errs) < shownErrors {
			s.errs = append(s.errs, fmt.Errorf("%s %s/%s: %w", k.Resource, o.Namespace, o.Name, err))
		}
	}
}
