package facts_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/env"
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
	reader := f.For(nil, facts.Subject{})
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
	f.awaitLack(t, "no.such/v1 Thing: the cluster does not have this kind", never)
	f.Use(nil, nil)
	f.awaitLack(t, "no.such/v1 Thing: the cluster does not have this kind", never)

	config, err := env.Shared(t).UserConfig(f.namespace)
	if err != nil {
		t.Fatal(err)
	}
	limited := newRunning(t, config)
	read := engine.Read{APIVersion: "apps/v1", Kind: "Deployment", Live: true}
	limited.awaitLack(t, "apps/v1 Deployment: Sallyport may not get, list deployments.apps", read)
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-direct"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-direct"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: f.namespace + "-direct"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: f.namespace}},
		},
	} {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	limited.awaitLack(t, "", read)
}
