package manager

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/decision"
)

// opening follows in every replica whether the gate is open, and whether etcd was restored. If the API server is away, the last opening counts until it ends.
type opening struct {
	cached   client.Reader
	is       atomic.Pointer[registration.Opening]
	restored *restored
}

// cachedOpening restricts the cache to the one configuration that says whether the gate is open.
func (o *Options) cachedOpening() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", o.policiesConfiguration())}
}

// addOpening makes the gate follow the annotations of the configuration, and adds the metrics.
func addOpening(mgr ctrl.Manager, gate *decision.Decider, restored *restored, registry prometheus.Registerer) error {
	o := &opening{cached: mgr.GetClient(), restored: restored}
	gate.OpenBy(o.at)
	for _, metric := range []prometheus.Collector{o.metric(time.Now), restored.metric()} {
		if err := registry.Register(metric); err != nil {
			return fmt.Errorf("registering the metrics of the gate: %w", err)
		}
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("gate").For(&admissionregistrationv1.ValidatingWebhookConfiguration{}).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).Complete(o)
	if err != nil {
		return fmt.Errorf("following whether the gate is open: %w", err)
	}
	return nil
}

func (o *opening) metric(now func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sallyport_gate_open_until_timestamp_seconds",
		Help: "When the open gate closes, as Unix time; 0 if it is closed.",
	}, func() float64 {
		if is := o.at(now()); is != nil {
			return float64(is.Until.Unix())
		}
		return 0
	})
}

func (o *opening) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := o.cached.Get(ctx, request.NamespacedName, configuration); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading webhook configuration %s: %w", request.Name, err)
	}
	o.is.Store(nil)
	if is, there := registration.OpeningOf(configuration); there {
		o.is.Store(&is)
	}
	o.restored.follow(configuration)
	return ctrl.Result{}, nil
}

// at returns the opening that counts at a time, or nil.
func (o *opening) at(now time.Time) *decision.Opening {
	is := o.is.Load()
	if is == nil || !is.Counts(now) {
		return nil
	}
	return &decision.Opening{Until: is.Until, Reason: is.Reason}
}
