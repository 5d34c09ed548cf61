package manager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/replicas"
)

// restored follows in every replica whether the release has become read-only, and whether etcd was restored and no administrator has resumed
// Sallyport since. Both are annotations of the configuration that also has the opening of the gate. Until then, nothing is sent to runtimes.
type restored struct {
	configuration string
	// again ends the process, so that the reconcilers of the next leader look at everything, which those of this one do not.
	again func()

	mgr   ctrl.Manager
	since atomic.Int64 // Unix time, 0 if it was not
	// readOnly is set if the release is read-only since after this process started without the flag: the replica that leads until the rollout
	// has replaced it sends nothing any more.
	readOnly atomic.Bool
	// noticed is set in a process that outlived the restore: its caches may be of the lost future, so it never acts again.
	noticed atomic.Bool
}

// begin reads the annotation before anything starts.
func (r *restored) begin(ctx context.Context, mgr ctrl.Manager) error {
	r.mgr = mgr
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := mgr.GetAPIReader().Get(ctx, types.NamespacedName{Name: r.configuration}, configuration)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", r.configuration, err)
	}
	r.follow(configuration)
	return nil
}

// halt returns what keeps reconcilers from acting: the flag, or what the configuration says.
func (o *Options) halt(r *restored) runtime.Halt {
	if o.ReadOnly {
		return runtime.ReadOnly
	}
	return r.halts
}

func (r *restored) halts() error {
	switch {
	case r.readOnly.Load():
		return runtime.ErrReadOnly
	case r.since.Load() != 0:
		return runtime.ErrRestored
	}
	return nil
}

// before returns what is asked before each request to a runtime: whether there is a halt, and whether the Lease of this replica says that
// etcd is still the one from which it has read what it acts on. A cache may have read a restored etcd before the Lease is renewed.
func (r *restored) before(halt runtime.Halt, lease *replicas.Replica) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := halt.Err(); err != nil {
			return err
		}
		switch err := lease.Confirm(ctx); {
		case errors.Is(err, replicas.ErrRestored):
			r.notice(time.Now())
			return runtime.ErrRestored
		case err != nil:
			return runtime.NewTakingOver(err, "nothing is sent to runtimes until this replica can read its Lease")
		}
		return nil
	}
}

// notice halts this process until its end.
func (r *restored) notice(now time.Time) {
	r.noticed.Store(true)
	r.since.Store(now.Unix())
}

// record writes the annotation. Without the configuration there was no Sallyport when the backup was made.
func (r *restored) record(ctx context.Context) error {
	now := time.Now()
	r.notice(now)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRestored, now.UTC().Format(time.RFC3339))
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = r.configuration
	if err := client.IgnoreNotFound(r.mgr.GetClient().Patch(ctx, configuration, client.RawPatch(types.MergePatchType, patch))); err != nil {
		return fmt.Errorf("writing annotation %s of ValidatingWebhookConfiguration %s: %w", v1alpha1.AnnotationRestored, r.configuration, err)
	}
	return nil
}

// follow takes over what a configuration says.
func (r *restored) follow(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	r.readOnly.Store(configuration.Annotations[v1alpha1.AnnotationReadOnly] == "true")
	if r.noticed.Load() {
		return
	}
	text, is := configuration.Annotations[v1alpha1.AnnotationRestored]
	var since int64
	if is {
		at, _ := time.Parse(time.RFC3339, text)
		since = max(at.Unix(), 1) // also if it cannot be parsed
	}
	switch was := r.since.Swap(since); {
	case is && was == 0:
		r.mgr.GetEventRecorder(eventSource).Eventf(configuration, nil, corev1.EventTypeWarning, "Restored", "Halt",
			"etcd was restored. Sallyport sends nothing to runtimes until an administrator runs: kubectl sallyport resume")
	case !is && was != 0:
		r.resume()
	}
}

func (r *restored) resume() {
	select {
	case <-r.mgr.Elected():
		r.again()
	default:
	}
}

func (r *restored) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sallyport_restored_timestamp_seconds",
		Help: "When it was noticed that etcd was restored, as Unix time; 0 once an administrator has resumed Sallyport.",
	}, func() float64 { return float64(r.since.Load()) })
}
