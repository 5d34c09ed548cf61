package manager

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// present reads from the API server, and rejects an object of Sallyport's that is older than in the cache: etcd was restored, which this
// process is about to notice, and what the object says must not be carried out.
type present struct {
	client.Reader
	cached client.Reader
}

// Get reads an object.
func (p present) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	before := p.before(ctx, key, o)
	if err := p.Reader.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if before == nil || before.GetUID() != o.GetUID() {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), before.GetResourceVersion()); err == nil && order < 0 {
		return fmt.Errorf("resourceVersion of %T %s is %s, and was %s before: %w",
			o, key, o.GetResourceVersion(), before.GetResourceVersion(), replicas.ErrRestored)
	}
	return nil
}

// before returns what the cache has of an object whose kind the reconcilers watch, or nil. It must be asked first: the cache may advance.
func (p present) before(ctx context.Context, key client.ObjectKey, of client.Object) (before client.Object) {
	switch of.(type) {
	case *v1alpha1.VirtualMachine:
		before = &v1alpha1.VirtualMachine{}
	case *v1alpha1.VirtualMachineOperation:
		before = &v1alpha1.VirtualMachineOperation{}
	case *v1alpha1.VirtualMachinePool:
		before = &v1alpha1.VirtualMachinePool{}
	case *v1alpha1.VirtualDisk:
		before = &v1alpha1.VirtualDisk{}
	case *v1alpha1.VMDiskImage:
		before = &v1alpha1.VMDiskImage{}
	case *v1alpha1.VSphereTemplate:
		before = &v1alpha1.VSphereTemplate{}
	default:
		return nil
	}
	if p.cached.Get(ctx, key, before) != nil {
		return nil
	}
	return before
}
