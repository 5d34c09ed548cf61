package watch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// look is how often to check whether the API server serves a kind.
const look = 10 * time.Second

// AwaitServed returns when the API server serves a kind, or with an error when the context ends.
func AwaitServed(ctx context.Context, mgr ctrl.Manager, kind schema.GroupVersionKind) error {
	return wait.PollUntilContextCancel(ctx, look, true, func(context.Context) (bool, error) {
		_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		return err == nil, nil
	})
}

// WhenServed returns a source that starts when the API server serves a kind, without the controller waiting for that.
func WhenServed(mgr ctrl.Manager, kind schema.GroupVersionKind, from source.Source) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			if AwaitServed(ctx, mgr, kind) != nil {
				return // the process ends
			}
			if err := from.Start(ctx, queue); err != nil {
				mgr.GetLogger().Error(err, "watching a kind that is served", "kind", kind.Kind)
			}
		}()
		return nil
	})
}
