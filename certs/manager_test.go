package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sallyport.dev/sallyport/test/support/env"
)

// allow gives a user the rights that docs/certificates.md lists, and those for leader election.
func (f *fixture) allow(user string) *rest.Config {
	f.Helper()
	names := []string{f.options.Secret.Namespace, "not-there"}
	meta := metav1.ObjectMeta{Name: user, Namespace: f.options.Secret.Namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{f.options.Secret.Name}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{f.options.Issued}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates", "issuers"}, Verbs: []string{"create"}},
		{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates"}, ResourceNames: []string{f.options.Issued, f.options.Issued + "-ca"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"cert-manager.io"}, Resources: []string{"issuers"}, ResourceNames: []string{f.options.Issued + "-root", f.options.Issued + "-ca"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"}},
	}}
	cluster := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: names, Verbs: []string{"get", "list", "watch", "patch"},
		},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, o := range []client.Object{
		role, cluster,
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}},
	} {
		f.Must(f.api.Create(f.Context(), o))
		f.Cleanup(func() { f.ignore(f.api.Delete(context.Background(), o)) })
	}
	config, err := env.Shared(f.T).UserConfig(user)
	f.Must(err)
	return config
}

// start runs a manager with a webhook server, as Sallyport's does.
func (f *fixture) start(restricted *rest.Config, name string) *replica {
	f.Helper()
	certificates := f.prepare()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	f.Must(err)
	address := free.Addr().(*net.TCPAddr)
	f.Must(free.Close())
	server := webhook.NewServer(webhook.Options{Host: address.IP.String(), Port: address.Port, TLSOpts: []func(*tls.Config){certificates.TLS}})
	mgr, err := ctrl.NewManager(restricted, ctrl.Options{
		WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"}, Scheme: f.api.Scheme(),
		LeaderElection: true, LeaderElectionID: "sallyport", LeaderElectionNamespace: f.options.Secret.Namespace, LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	f.Must(err)
	f.Must(certificates.SetupWithManager(mgr, place{&f.board, name}))
	mgr.GetWebhookServer() // which is started with the rest from now on
	f.board.mu.Lock()
	f.board.all[name] = ""
	f.board.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			f.Error(err)
		}
	})
	f.Cleanup(done.Wait)
	f.Cleanup(cancel)
	r := &replica{Certificates: certificates, name: name, address: address.String()}
	return r
}

func TestManagersWithTheirRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.options.Now, f.options.Settle, f.options.Poll = time.Now, time.Second, 100*time.Millisecond
	config := f.allow(f.options.Secret.Namespace + "-user")
	for _, name := range []string{"a", "b"} {
		f.replicas = append(f.replicas, f.start(config, name))
	}
	f.Eventually("both are ready", func() bool { return f.replicas[0].ready() == nil && f.replicas[1].ready() == nil })
	load := f.load()
	load.pass(f, 0)

	first := f.replicas[0].hash()
	f.Must(f.api.Delete(t.Context(), f.secret())) // which is how people ask for a new authority
	f.Eventually("both serve another certificate and the old authority is gone", func() bool {
		if err := f.api.Get(t.Context(), f.options.Secret, f.secret()); err != nil {
			return false
		}
		c := f.state()
		return c.certificate != nil && len(c.trusted) == 0 && c.hash() != first && f.replicas[0].hash() == c.hash() && f.replicas[1].hash() == c.hash()
	})
	load.pass(f, 0)

	if failed := load.failed.Load(); failed != nil {
		t.Fatal(*failed)
	}
	want := f.state()
	configurations, err := f.live(t.Context())
	f.Must(err)
	for _, c := range configurations { // more than ours, so that no handshake fails meanwhile
		before := c.DeepCopyObject().(client.Object)
		endpoints(c)[0].CABundle = append(want.bundle(), '\n')
		f.Must(f.api.Patch(t.Context(), c, client.MergeFrom(before)))
	}
	f.Eventually("the bundles are repaired", func() bool {
		configurations, err := f.live(t.Context())
		f.Must(err)
		all := bundles(configurations, time.Now())
		return len(all) == 1 && all[string(want.bundle())] != nil
	})
	load.pass(f, 0)
	f.Eventually("people are told", func() bool {
		all := &eventsv1.EventList{}
		f.Must(f.api.List(t.Context(), all, client.InNamespace(f.options.Secret.Namespace)))
		seen := map[string]bool{}
		for _, e := range all.Items {
			seen[fmt.Sprintf("%s/%s", e.Regarding.Kind, e.Reason)] = true
		}
		return seen["Secret/"+reasonIssued] && seen["Secret/"+reasonAuthorityDropped]
	})
	other := &corev1.Secret{}
	if err := f.replicas[0].live.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "other"}, other); err == nil {
		t.Error("other Secrets are read")
	}
}

// With its rights a leader has cert-manager issue the certificate, and what replicas serve changes to it.
func TestManagersWithCertManager(t *testing.T) {
	installCertManager(t)
	f := newFixture(t)
	f.options.Mode, f.options.Now, f.options.Settle, f.options.Poll = Auto, time.Now, time.Second, 100*time.Millisecond
	config := f.allow(f.options.Secret.Namespace + "-user")
	f.replicas = append(f.replicas, f.start(config, "a"))
	f.Eventually("it is ready", func() bool { return f.replicas[0].ready() == nil })
	f.add(-2 * fresh) // or the certificate would have to wait
	f.Eventually("cert-manager issues the certificate", f.issue)
	f.Eventually("it is served", func() bool {
		return f.replicas[0].state.Load().served.mode == CertManager && f.replicas[0].ready() == nil
	})
}
