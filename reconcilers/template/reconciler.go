// Package template reconciles VSphereTemplates with the templates in vCenter: a release is imported beside the
// previous one, and takes its name once it is complete.
//
// The content of the folder determines the next step, see [wanted.next]; no state is kept in memory. Each change
// names the version that was read, so that of two concurrent processes one fails and reads again.
package template

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	defaultPoll = 2 * time.Second
	// resync is the interval at which an idle folder is read, in case its content was changed.
	resync = 10 * time.Minute
	// firstRetry and lastRetry bound the wait after an error in a failure domain.
	firstRetry, lastRetry = time.Second, 5 * time.Minute
	// patience limits an import including its download.
	patience = 3 * time.Hour
	// swapPatience limits how long the names are not swapped because machines are being created from the current
	// template. Where there always is one, the next release would otherwise never be used.
	swapPatience = 30 * time.Minute
)

// Source starts the download of the OVA in the spec. The download ends with ctx.
type Source func(ctx context.Context, d templates.Domain) (templates.Archive, error)

// Reconciler reconciles VSphereTemplates.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Stores returns the store with the templates.
	Stores func(context.Context, *v1alpha1.VSphereTemplate) (templates.Store, error)
	// Fetch opens the OVA of a release.
	Fetch  Source
	Events events.EventRecorder
	// Metrics counts swaps and imports; it may be nil.
	Metrics *Metrics
	Now     func() time.Time
	// Poll is the interval at which a running import is checked. Default 2 s.
	Poll time.Duration

	once    sync.Once
	jobs    *jobs
	retries workqueue.TypedRateLimiter[string]
	ended   chan event.GenericEvent

	mu        sync.Mutex
	due       map[string]time.Time // when a failure domain with an error is retried
	usable    map[string]bool      // failure domains that are retried at once, whatever a pass under way still records
	heldSince map[string]time.Time // since when a failure domain holds back a swap of names
}

func (r *Reconciler) init() {
	r.once.Do(func() {
		r.jobs, r.ended = newJobs(), make(chan event.GenericEvent, 64)
		r.due, r.usable, r.heldSince = map[string]time.Time{}, map[string]bool{}, map[string]time.Time{}
		r.retries = workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	})
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.init()
	if err := mgr.Add(r.jobs); err != nil {
		return fmt.Errorf("adding the imports of templates: %w", err)
	}
	if err := r.Metrics.register(mgr.GetClient(), mgr.Elected()); err != nil {
		return fmt.Errorf("registering the metrics of templates: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VSphereTemplate{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.VSphereServer{}, handler.EnqueueRequestsFromMapFunc(r.templatesOfServer), builder.WithPredicates(usableAgain)).
		WatchesRawSource(source.Channel(r.ended, &handler.EnqueueRequestForObject{})).
		WithOptions(watch.Options(lastRetry)).
		Complete(r)
}

// usableAgain passes updates of a VSphereServer after which what failed before may work: its spec has changed, or it has become ready.
var usableAgain = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false }, // with the VSphereTemplates, at the start
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*v1alpha1.VSphereServer)
		now, is := e.ObjectNew.(*v1alpha1.VSphereServer)
		return was && is && (before.Generation != now.Generation || !isReady(before) && isReady(now))
	},
}

func isReady(s *v1alpha1.VSphereServer) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, string(v1alpha1.ConditionReady))
}

// templatesOfServer returns requests for the VSphereTemplates of a VSphereServer, whose errors are retried now.
func (r *Reconciler) templatesOfServer(ctx context.Context, server client.Object) (requests []reconcile.Request) {
	var all v1alpha1.VSphereTemplateList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "finding the VSphereTemplates of a VSphereServer", "server", server.GetName())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all.Items {
		t := &all.Items[i]
		if t.Spec.ServerRef.Name != server.GetName() {
			continue
		}
		for _, p := range r.places(t) {
			r.usable[p.key] = true
		}
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(t)})
	}
	return requests
}

// Reconcile advances the templates of one VSphereTemplate.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.init()
	t := &v1alpha1.VSphereTemplate{}
	if err := r.Live.Get(ctx, request.NamespacedName, t); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	again, err := r.act(ctx, t)
	return persist.Result(again, client.IgnoreNotFound(err))
}

func (r *Reconciler) act(ctx context.Context, t *v1alpha1.VSphereTemplate) (again time.Duration, err error) {
	deleted := !t.DeletionTimestamp.IsZero()
	if held, err := persist.Hold(ctx, r.Client, t, v1alpha1.VSphereTemplateFinalizer); !held {
		return 0, err
	}
	read := t.Status.DeepCopy()
	places := r.places(t)
	var all sync.WaitGroup
	for _, p := range places {
		all.Go(func() { r.pass(ctx, t, p) })
	}
	all.Wait()
	r.updateStatus(t, places)
	if deleted && len(t.Status.FailureDomains) == 0 {
		return 0, persist.Release(ctx, r.Client, t, v1alpha1.VSphereTemplateFinalizer)
	}
	again = wait.Jitter(resync, 0.2)
	for _, p := range places {
		if p.again > 0 && (!deleted || !p.ended) { // a deleted VSphereTemplate needs no retry for a removed domain
			again = min(again, p.again)
		}
	}
	changed, err := persist.Status(ctx, r.Client, t, read, &t.Status)
	if changed {
		r.recordEvents(t, read)
	}
	return again, err
}

// errChanged ends a pass whose spec is outdated.
var errChanged = errors.New("the VSphereTemplate has changed in the meantime")

// checkUnchanged returns errChanged if the spec has changed. It is called between a read of a folder and a change
// there: a process with a later spec either has changed the item since, so that this change fails, or reads the
// folder after it.
func (r *Reconciler) checkUnchanged(ctx context.Context, t *v1alpha1.VSphereTemplate) error {
	now := &v1alpha1.VSphereTemplate{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(t), now); err != nil {
		if apierrors.IsNotFound(err) {
			return errChanged
		}
		return fmt.Errorf("reading VSphereTemplate %s again: %w", t.Name, err)
	}
	if now.UID != t.UID || now.Generation != t.Generation || now.DeletionTimestamp.IsZero() != t.DeletionTimestamp.IsZero() {
		return errChanged
	}
	return nil
}

func (r *Reconciler) recordEvents(t *v1alpha1.VSphereTemplate, before *v1alpha1.VSphereTemplateStatus) {
	for i := range t.Status.FailureDomains {
		now := &t.Status.FailureDomains[i]
		was := domainStatus(before, now.Name)
		if now.Release != "" && now.Release != was.Release {
			r.Events.Eventf(t, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonTemplateReplaced), "Replace",
				"failure domain %s: %s has release %s now", now.Name, t.Spec.Name, now.Release)
		}
		ready, earlier := v1alpha1.ConditionReady.In(now.Conditions), v1alpha1.ConditionReady.In(was.Conditions)
		if warns(ready) && (earlier == nil || earlier.Reason != ready.Reason) {
			r.Events.Eventf(t, nil, corev1.EventTypeWarning, ready.Reason, "Observe", "failure domain %s: %s", now.Name, ready.Message)
		}
	}
}

// warns reports whether the condition is worth a Warning event.
func warns(ready *metav1.Condition) bool {
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonTemplateReady, v1alpha1.ReasonTemplateInProgress, v1alpha1.ReasonPaused, v1alpha1.ReasonTakingOver, v1alpha1.ReasonReadOnly, v1alpha1.ReasonTerminating:
		return false
	}
	return true
}

// keyOf returns the key of a failure domain, unique across VSphereTemplates.
func keyOf(uid types.UID, folder string) string { return string(uid) + " " + folder }
