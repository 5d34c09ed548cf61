// Package vsphereserver maintains the connections to vCenters: it passes changed credentials to the sessions, and shows in the
// status of each VSphereServer whether the vCenter answers, its version and its inventory.
//
// The credentials are in Secrets of the namespace that Sallyport is installed in. Only there Secrets are read and watched.
package vsphereserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/persist"
	"sallyport.dev/sallyport/reconcilers/watch"
)

const (
	defaultResync = time.Minute
	defaultCall   = 10 * time.Second

	// firstRetry and lastRetry bound the wait after an error.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// Reconciler reconciles VSphereServers.
type Reconciler struct {
	// Client writes, and lists VSphereServers from its cache.
	Client client.Client
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Namespace is the namespace of the Secrets with credentials, which is the one of the installation.
	Namespace string
	// Servers manages the connections.
	Servers Servers
	Events  events.EventRecorder
	Now     func() time.Time
	// Resync is the interval at which a connected vCenter is checked. Default 60 s.
	Resync time.Duration
	// Call limits each call to vCenter. Default 10 s.
	Call time.Duration
}

// SetupWithManager registers the reconciler, with a watch on the metadata of Secrets in its namespace.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	secrets, err := watch.Cache(mgr, cache.Options{DefaultNamespaces: map[string]cache.Config{r.Namespace: {}}})
	if err != nil {
		return fmt.Errorf("making a cache for the Secrets of namespace %s: %w", r.Namespace, err)
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VSphereServer{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Kind(secrets, secret, handler.TypedEnqueueRequestsFromMapFunc(r.serversOfSecret))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 8, // a vCenter that hangs blocks only itself
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

func (r *Reconciler) serversOfSecret(ctx context.Context, secret *metav1.PartialObjectMetadata) []reconcile.Request {
	servers := &v1alpha1.VSphereServerList{}
	if err := r.Client.List(ctx, servers); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing the VSphereServers that use a Secret, which are therefore reconciled later", "secret", secret.Name)
		return nil
	}
	var requests []reconcile.Request
	for _, s := range servers.Items {
		if s.Spec.CredentialsSecretRef.Name == secret.Name {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: s.Name}})
		}
	}
	return requests
}

// Reconcile checks one vCenter and updates the status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	server := &v1alpha1.VSphereServer{}
	err := r.Live.Get(ctx, request.NamespacedName, server)
	switch {
	case apierrors.IsNotFound(err):
		r.Servers.Forget(request.Name)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading VSphereServer %s: %w", request.Name, err)
	}
	before := server.DeepCopy()
	trouble := r.connect(ctx, server)
	r.setReady(server, trouble)
	switch err := r.save(ctx, before, server); {
	case apierrors.IsConflict(err): // conflict: read again
		return ctrl.Result{RequeueAfter: firstRetry}, nil
	case err != nil:
		return ctrl.Result{}, err
	case trouble != nil && trouble.passes:
		return ctrl.Result{}, errors.New(trouble.log)
	}
	return ctrl.Result{RequeueAfter: r.resync()}, nil
}

// connect connects to vCenter and copies version and inventory into the status.
func (r *Reconciler) connect(ctx context.Context, server *v1alpha1.VSphereServer) *trouble {
	connection, trouble := r.connection(ctx, server)
	if trouble != nil {
		if trouble.withdrawn { // without its credentials the session must end
			r.Servers.Forget(server.Name)
		}
		return trouble
	}
	about, err := limited(ctx, r.call(), func(ctx context.Context) (About, error) {
		return r.Servers.Connect(ctx, server.Name, connection)
	})
	if err != nil {
		return connectTrouble(server.Name, err, connection)
	}
	inventory, err := limited(ctx, r.call(), func(ctx context.Context) (Inventory, error) {
		return r.Servers.Inventory(ctx, server.Name, server.Spec.Tenants)
	})
	if err != nil {
		return callTrouble(err, connection)
	}
	server.Status.Version, server.Status.InstanceUUID = about.Version, about.InstanceUUID
	server.Status.Hosts = sortedHosts(inventory.Hosts)
	server.Status.Inventory = sortedInventory(inventory.Places)
	if err := r.orphans(ctx, server, inventory.Marked); err != nil {
		// It does not affect readiness; the next pass tries again.
		ctrl.LoggerFrom(ctx).Error(err, "looking for machines without a VirtualMachine", "VSphereServer", server.Name)
	}
	return nil
}

func limited[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// save writes the status if it has changed, and then records an event.
func (r *Reconciler) save(ctx context.Context, before, server *v1alpha1.VSphereServer) error {
	changed, err := persist.Status(ctx, r.Client, server, &before.Status, &server.Status)
	if changed {
		r.recordEvent(before, server)
	}
	return client.IgnoreNotFound(err)
}

func (r *Reconciler) resync() time.Duration {
	if r.Resync == 0 {
		return defaultResync
	}
	return r.Resync
}

func (r *Reconciler) call() time.Duration {
	if r.Call == 0 {
		return defaultCall
	}
	return r.Call
}
