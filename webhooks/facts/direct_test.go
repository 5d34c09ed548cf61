package facts_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// A kind that is only read live is never watched or listed as a whole, and takes the rights to get and list.
func TestKindsThatAreOnlyReadLive(t *testing.T) {
	w := watching(env.Shared(t).Config)
	f := newRunning(t, w.config)
	services := engine.Read{APIVersion: "v1", Kind: "Service", Live: true}
	f.awaitLack(t, "", services)
	f.Use([]engine.Read{services}, nil)
	if err := f.Synced(); err != nil {
		t.Errorf("nothing is to be synced: %v", err)
	}
	if w.lists("services") != 0 || w.open("services") != 0 {
		t.Errorf("Services were listed %d times, and are watched %d times", w.lists("services"), w.open("services"))
	}
	f.Use(nil, nil)
	f.await(t, "what nobody wants to be dropped", func() bool { return f.Live() == 0 })
	f.awaitLack(t, "", services)
	f.Use([]engine.Read{services}, nil)
	reader := f.For(&admissionv1.AdmissionRequest{}, facts.Subject{})
	if _, err := reader.Read(t.Context(), engine.Query{APIVersion: "v1", Kind: "Service", Namespace: f.namespace, Live: true}); err != nil {
		t.Errorf("reading live: %v", err)
	}
	if _, err := reader.Read(t.Context(), engine.Query{APIVersion: "v1", Kind: "Service"}); err == nil || !strings.Contains(err.Error(), "is not watched") {
		t.Errorf("the cache answers for what is not watched: %v", err)
	}

	cached := engine.Read{APIVersion: "v1", Kind: "Service"} // which another policy wants
	f.awaitLack(t, "", services, cached)
	f.Use([]engine.Read{services}, nil)
	f.Lapse()
	f.await(t, "the watch to end", func() bool { return w.open("services") == 0 })
	f.awaitLack(t, "", services)
}

func TestLiveReadsThatCannotBe(t *testing.T) {
	f := newRunning(t, nil)
	never := engine.Read{APIVersion: "no.such/v1", Kind: "Thing", Live: true}
	f.awaitLack(t, "no.such/v1 Thing: the API server does not serve this kind", never)
	f.Use(nil, nil)
	f.awaitLack(t, "no.such/v1 Thing: the API server does not serve this kind", never)
}

// A right that is taken away is noticed from time to time, and at once when a read is refused; and so is that it is granted again.
func TestRightsToReadLiveComeAndGo(t *testing.T) {
	for name, refused := range map[string]bool{"from time to time": false, "when a read is refused": true} {
		t.Run(name, func(t *testing.T) {
			f := newRunning(t, nil)
			config, err := env.Shared(t).UserConfig(f.namespace)
			if err != nil {
				t.Fatal(err)
			}
			limited := newRunning(t, config)
			if !refused {
				limited.Recheck(100 * time.Millisecond)
			}
			read := engine.Read{APIVersion: "apps/v1", Kind: "Deployment", Live: true}
			limited.Use([]engine.Read{read}, nil)
			const lacks = "apps/v1 Deployment: Sallyport may not get, list deployments.apps"
			limited.awaitLack(t, lacks, read)
			role := &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-direct"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list"}}},
			}
			binding := func() *rbacv1.ClusterRoleBinding {
				return &rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-direct"},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: f.namespace + "-direct"},
					Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: f.namespace}},
				}
			}
			f.must(t, f.client.Create(t.Context(), role))
			for range 2 {
				f.must(t, f.client.Create(t.Context(), binding()))
				limited.awaitLack(t, "", read)
				f.must(t, f.client.Delete(t.Context(), binding()))
				if refused {
					limited.await(t, "a read to be refused", func() bool {
						_, err := limited.For(&admissionv1.AdmissionRequest{}, facts.Subject{}).Read(t.Context(), engine.Query{
							APIVersion: "apps/v1", Kind: "Deployment", Namespace: f.namespace, Live: true,
						})
						return apierrors.IsForbidden(err)
					})
				}
				limited.awaitLack(t, lacks, read)
			}
		})
	}
}

// unmapped is a client of an API server that at times does not say which kinds there are.
type unmapped struct {
	client.Client
	down  atomic.Bool
	asked atomic.Int32 // while it did not
}

func (u *unmapped) RESTMapper() meta.RESTMapper {
	if u.down.Load() {
		u.asked.Add(1)
		return silent{}
	}
	return u.Client.RESTMapper()
}

type silent struct{ meta.RESTMapper }

func (silent) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}

// An API server that does not answer takes no right away.
func TestAnAPIServerThatIsDownLeavesKindsReadable(t *testing.T) {
	f := newFixture(t, nil)
	api := &unmapped{Client: f.client}
	f.Store = facts.NewStore(nil, api)
	f.Hasten()
	f.Recheck(time.Millisecond)
	read := engine.Read{APIVersion: "apps/v1", Kind: "Deployment", Live: true}
	f.awaitLack(t, "", read)
	api.down.Store(true)
	f.await(t, "the rights to be looked into", func() bool { return api.asked.Load() > 2 })
	if lack := f.lacking(t, read); lack != "" {
		t.Error(lack)
	}
}

func (f *fixture) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
