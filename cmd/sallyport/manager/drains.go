package manager

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sallyport.dev/sallyport/reconcilers/drain"
	"sallyport.dev/sallyport/webhooks/record"
)

// evictions is the channel of machine Pods whose eviction was denied for now.
type evictions chan event.GenericEvent

// send never blocks, because a request waits for it. Clients retry evictions.
func (e evictions) send(pod types.NamespacedName) {
	select {
	case e <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}}:
	default:
	}
}

// addDrains adds the reconciler that migrates machines of kind pod instead of letting them be evicted.
func (o *Options) addDrains(mgr ctrl.Manager, recorder *record.Recorder) error {
	if !o.PodRuntime || !o.PodDrains {
		return nil
	}
	denied := make(evictions, 64)
	recorder.OnDeniedEviction(denied.send)
	drains := &drain.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(eventSource), Now: time.Now, Evictions: denied,
		Verified: o.ClientCAFile != "",
	}
	if err := drains.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the drain reconciler: %w", err)
	}
	return nil
}
