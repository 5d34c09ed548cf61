package manager

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/decoding"
	"sallyport.dev/sallyport/commands"
)

// undecodable are the objects of Sallyport's kinds that do not decode into their Go types. The cache of the reconcilers leaves them out
// and goes on; a live read returns an error that names it. A RegoPolicy is reduced instead: it must not look deleted, and without a
// usable spec its last good revision stays active.
type undecodable struct {
	scheme *runtime.Scheme
	events events.EventRecorder // set before the caches start

	mu    sync.Mutex
	known map[types.UID]string // their kinds
}

func newUndecodable() (*undecodable, error) {
	u := &undecodable{scheme: runtime.NewScheme(), known: map[types.UID]string{}}
	return u, v1alpha1.AddToScheme(u.scheme)
}

// live returns the config of clients that read live.
func (u *undecodable) live(config *rest.Config) *rest.Config {
	return filtered(config, decoding.Filter{Scheme: u.scheme, Reduce: isPolicy})
}

// newCache returns what makes the cache of the reconcilers.
func (u *undecodable) newCache(config *rest.Config) cache.NewCacheFunc {
	config = filtered(config, decoding.Filter{
		Scheme: u.scheme, DropManagedFields: true, Left: u.left, Fine: u.fine, Watches: true, Reduce: isPolicy,
	})
	return func(_ *rest.Config, o cache.Options) (_ cache.Cache, err error) {
		if o.HTTPClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, err
		}
		return cache.New(config, o)
	}
}

func isPolicy(kind string) bool { return kind == "RegoPolicy" }

// filtered is a config whose clients have their answers filtered.
func filtered(config *rest.Config, f decoding.Filter) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(f.Wrap)
	return config
}

// left records an event about an object that does not decode, once until it does or is deleted.
func (u *undecodable) left(e *decoding.Error) {
	u.mu.Lock()
	_, known := u.known[e.UID]
	u.known[e.UID] = e.Kind
	u.mu.Unlock()
	if known {
		return
	}
	ctrl.Log.WithName("decoding").Error(e, "an object is left out", e.Kind, e.NamespacedName, "wayOut", e.WayOut())
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID}}
	about.SetGroupVersionKind(e.GroupVersionKind)
	u.events.Eventf(about, nil, corev1.EventTypeWarning, string(decoding.Reason), "Decode", "Sallyport leaves the object out: %v; %s", e, e.WayOut())
}

// fine records that an object decodes, or is gone.
func (u *undecodable) fine(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.known, uid)
}

// ready is a readiness check. At /readyz it always succeeds, because the replica serves all other objects. At /readyz/undecodable it fails as
// long as objects are left out, and names their kinds. It does not name the objects, because every client can read it.
func (u *undecodable) ready(r *http.Request) error {
	if strings.Trim(r.URL.Path, "/") == "" {
		return nil
	}
	var kinds []string
	for kind, n := range u.counts() {
		kinds = append(kinds, fmt.Sprintf("%s: %d", kind, n))
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.Sort(kinds)
	return fmt.Errorf("objects cannot be decoded and are left out (%s); `%s` names them",
		strings.Join(kinds, ", "), commands.Line("kubectl", "get", "events", "-A", "--field-selector", "reason="+string(decoding.Reason)))
}

// counts returns how many objects of each kind are left out, without kinds that have none.
func (u *undecodable) counts() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	count := map[string]int{}
	for _, kind := range u.known {
		count[kind]++
	}
	return count
}

var undecodableObjects = prometheus.NewDesc("sallyport_undecodable_objects",
	"Objects of a kind that do not decode into its Go type and are left out. Their events say why.", []string{"kind"}, nil)

func (u *undecodable) Describe(descs chan<- *prometheus.Desc) { descs <- undecodableObjects }

func (u *undecodable) Collect(metrics chan<- prometheus.Metric) {
	count := u.counts()
	for i := range v1alpha1.Kinds {
		kind := v1alpha1.Kinds[i].Name
		metrics <- prometheus.MustNewConstMetric(undecodableObjects, prometheus.GaugeValue, float64(count[kind]), kind)
	}
}
