package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/claim"
	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

// asReplica has the test program be a replica, with the flags of the manager.
const asReplica = "SALLYPORT_TEST_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		if err := beReplica(); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(2)
		}
		return
	}
	install.Main(m)
}

// The endpoints of a replica in tests: one that answers, and one that does so only after connections are not taken any more.
const (
	echoPath = "/echo"
	holdPath = "/hold"
)

// beReplica is the manager without policies and reconcilers: what serves, and how it ends.
func beReplica() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer endAtTheSecondSignal(ctx)()
	ctrl.SetLogger(klog.NewKlogr())
	o := &Options{}
	command := NewCommand(nil)
	command.ResetFlags()
	o.addFlags(command)
	if err := command.ParseFlags(os.Args[1:]); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	served, err := o.newServing(config, o.Namespace, nil)
	if err != nil {
		return err
	}
	mgr, _, err := o.newManager(config, o.Namespace, &claim.Locks{}, served.server)
	if err != nil {
		return err
	}
	handle := mgr.GetWebhookServer().Register
	handle(echoPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %s", o.ReplicaName, body)
	}))
	handle(holdPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-served.ending.stop
		for !refused(o) { // until then this reply could be early
			time.Sleep(time.Millisecond)
		}
		_, _ = fmt.Fprint(w, "held")
	}))
	if err := served.add(mgr); err != nil {
		return err
	}
	return served.run(ctx, mgr)
}

// refused tells whether connections are not taken any more.
func refused(o *Options) bool {
	conn, err := net.Dial("tcp", net.JoinHostPort(o.WebhookHost, fmt.Sprint(o.WebhookPort)))
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// site is a namespace with webhook configurations, for replicas.
type site struct {
	step.T
	api       client.WithWatch
	namespace string
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	api, namespace := install.Shared(t, "serving-")
	s := &site{T: step.T{T: t}, api: api, namespace: namespace}
	endpoint := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: s.namespace, Name: "sallyport-webhook"}}
	none := ptr.To(admissionregistrationv1.SideEffectClassNone)
	meta := metav1.ObjectMeta{Name: s.namespace}
	for _, c := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "m.manager.test", ClientConfig: endpoint, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
		}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "v.manager.test", ClientConfig: endpoint, SideEffects: none, AdmissionReviewVersions: []string{"v1"},
		}}},
	} {
		s.Must(api.Create(t.Context(), c))
		t.Cleanup(func() { _ = api.Delete(context.Background(), c) })
	}
	return s
}

// member is a replica, a process of its own.
type member struct {
	*site
	name, webhooks, health string

	process *env.Daemon
	command *exec.Cmd
	log     install.Log
}

// start starts a replica with those flags beside the usual ones.
func (s *site) start(name string, flags ...string) *member {
	s.Helper()
	m := &member{site: s, name: name, webhooks: freeAddress(s.T.T), health: freeAddress(s.T.T)}
	host, port, err := net.SplitHostPort(m.webhooks)
	s.Must(err)
	m.command = exec.Command(os.Args[0], append([]string{
		"--namespace", s.namespace, "--webhook-configuration", s.namespace, "--replica-name", name,
		"--webhook-host", host, "--webhook-port", port, "--health-probe-bind-address", m.health, "--metrics-bind-address", "0",
	}, flags...)...)
	m.command.Env = append(os.Environ(), asReplica+"=1", "KUBECONFIG="+env.Shared(s.T).Kubeconfig())
	m.command.Stdout, m.command.Stderr = &m.log, &m.log
	m.process, err = env.StartDaemon(m.command)
	s.Must(err)
	s.Cleanup(func() {
		_ = m.process.Kill()
		if s.Failed() {
			s.Logf("log of %s:\n%s", name, m.log.String())
		}
	})
	return m
}

// freeAddress is one that nobody listens on, which is nearly certain to stay so: the kernel does not give its port away soon.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// signal sends SIGTERM.
func (m *member) signal() {
	m.Helper()
	m.Must(m.command.Process.Signal(syscall.SIGTERM))
}

// ends waits for its end, and tells how it was.
func (m *member) ends() error {
	m.Helper()
	select {
	case <-m.process.Ended():
		return m.process.Err()
	case <-time.After(time.Minute):
		m.Fatalf("%s does not end", m.name)
		return nil
	}
}

func (m *member) says(probe string) bool {
	return install.ReadyAt("http://" + m.health + "/" + probe)(m.Context())
}

// backend is the replica, for a balancer.
func (m *member) backend() install.Backend {
	return install.Backend{Address: m.webhooks, Ready: install.ReadyAt("http://" + m.health + "/readyz")}
}

// isSignedOff tells that it has no Lease any more.
func (m *member) isSignedOff() bool {
	m.Helper()
	key := client.ObjectKey{Namespace: m.namespace, Name: "sallyport-replica-" + m.name}
	err := m.api.Get(m.Context(), key, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}})
	m.Must(client.IgnoreNotFound(err))
	return apierrors.IsNotFound(err)
}

// authorities are those that API servers trust now.
func (s *site) authorities() ([]byte, error) {
	all := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := s.api.Get(s.Context(), client.ObjectKey{Name: s.namespace}, all)
	if err != nil {
		return nil, err
	}
	return all.Webhooks[0].ClientConfig.CABundle, nil
}

// service is what API servers call a replica.
func (s *site) service() string {
	return strings.Join([]string{"sallyport-webhook", s.namespace, "svc"}, ".")
}
