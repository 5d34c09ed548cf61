package certmanager

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	"sallyport.dev/sallyport/test/support/step"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// The Secrets of Sallyport's own certificate and of cert-manager's.
const own, issued = "sallyport-certificate", "sallyport-webhook-tls"

// settle is --certificate-settle.
const settle = time.Second

// site is a control plane with an installed Sallyport of two replicas, and cert-manager's programs.
type site struct {
	step.T
	plane     *env.ControlPlane
	second    *rest.Config // another API server
	sallyport *install.Sallyport
	kubelet   *install.Kubelet
	options   install.Options
	client    client.Client // knows cert-manager's kinds
	clientset kubernetes.Interface
	traffic   *traffic
	program   string // cert-manager
	kube      string // the administrator's kubeconfig
	logs      *install.Log
	issuing   *install.Log // of cert-manager
	running   map[string]*env.Daemon
	rows      *[]string
}

// newSite installs the chart, for certificates of cert-manager that are valid for some time.
func newSite(t *testing.T, validity time.Duration) *site {
	t.Helper()
	s := &site{T: step.T{T: t}, logs: &install.Log{}, issuing: &install.Log{}, running: map[string]*env.Daemon{}, rows: &[]string{}}
	var err error
	binary, err := install.Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/sallyport")
	s.Must(err)
	s.plane, err = env.Start(context.WithoutCancel(t.Context()), env.Options{ControllerManager: true, ControllerManagerFlags: install.ControllerManagerFlags()})
	s.Must(err)
	s.second, err = s.plane.AddAPIServer(t.Context())
	s.Must(err)
	s.kube, err = s.plane.UserKubeconfig("cert-manager", "system:masters")
	s.Must(err)
	s.clientset, err = kubernetes.NewForConfig(s.plane.Config)
	s.Must(err)
	scheme := runtime.NewScheme()
	utilruntime.Must(certmanagerv1.AddToScheme(scheme))
	s.client, err = client.New(s.plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	s.sallyport, err = install.Prepare(t.Context(), s.plane)
	s.Must(err)
	s.options = install.Options{Binary: binary, Logs: s.logs, Flags: []string{
		"--decision-records", "off", "--shutdown-delay", "3s", "--certificate-settle", settle.String(),
		"--lease-duration", "3s", "--renew-deadline", "2s", "--runtime-call-timeout", "1s", "--retry-period", "300ms",
	}}
	s.kubelet, err = s.sallyport.NewKubelet(t.Context(), s.valid(validity))
	s.Must(err)
	t.Cleanup(func() {
		if t.Failed() {
			s.describe()
		}
		for name := range s.running {
			s.stop(name)
		}
		if err := s.kubelet.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(s.sallyport.Remove(), s.plane.Stop()); err != nil {
			t.Error(err)
		}
	})
	s.rolledOut()
	s.kubectl("wait rego --all --for=condition=Ready --timeout=3m")
	s.Must(s.sallyport.AwaitJudgement(t.Context()))
	return s
}

// valid are the options of replicas for which cert-manager's certificates are valid for some time.
func (s *site) valid(validity time.Duration) install.Options {
	o := s.options
	o.Flags = append(slices.Clone(o.Flags), "--certificate-duration", validity.String())
	return o
}

// upgrade changes values of the release, and the validity of cert-manager's certificates, and replaces the replicas.
func (s *site) upgrade(validity time.Duration, values ...string) {
	s.Helper()
	s.kubelet.Options(s.valid(validity))
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	s.Must(s.sallyport.Upgrade(s.Context(), args...))
	s.kubectl("rollout restart deployment/" + install.Release + " --namespace " + install.Namespace)
	s.rolledOut()
}

func (s *site) rolledOut() {
	s.Helper()
	s.kubectl("rollout status deployment/" + install.Release + " --timeout=3m --namespace " + install.Namespace)
	s.Until("nothing but two replicas is left", func() (string, bool) {
		pods, err := s.clientset.CoreV1().Pods(install.Namespace).List(s.Context(), metav1.ListOptions{})
		s.Must(err)
		return fmt.Sprint(len(pods.Items)), len(pods.Items) == 2
	})
}

func (s *site) kubectl(line string) string {
	s.Helper()
	stdout, stderr, code := s.plane.Kubectl(s.Context(), strings.Fields(line)...)
	if code != 0 {
		s.Fatalf("kubectl %s: %s%s", line, stdout, stderr)
	}
	return stdout
}

// installCertManager makes its kinds known and starts its controllers.
func (s *site) installCertManager() {
	s.Helper()
	folder, err := exec.CommandContext(s.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	s.Must(err)
	s.kubectl("apply --server-side -f " + filepath.Join(strings.TrimSpace(string(folder)), "deploy", "crds"))
	s.kubectl("wait --for=condition=Established crd certificates.cert-manager.io issuers.cert-manager.io certificaterequests.cert-manager.io --timeout=1m")
	s.start("controller")
}

// describe shows what there is after a failure.
func (s *site) describe() {
	for _, line := range []string{"get certificates,issuers,certificaterequests,secrets -o wide", "get events --sort-by=.lastTimestamp"} {
		stdout, stderr, _ := s.plane.Kubectl(context.Background(), append(strings.Fields(line), "--namespace", install.Namespace)...)
		s.Logf("kubectl %s:\n%s%s", line, stdout, stderr)
	}
	s.Logf("the end of the managers' logs:\n%s\nof cert-manager's:\n%s", install.Tail(s.logs.String(), 40), install.Tail(s.issuing.String(), 60))
}

// start starts a component of cert-manager.
func (s *site) start(component string, flags ...string) {
	s.Helper()
	command := exec.Command(s.program, append(flags, component)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kube)
	command.Stdout, command.Stderr = s.issuing, s.issuing
	var err error
	s.running[component], err = env.StartDaemon(command)
	s.Must(err)
}

func (s *site) stop(component string) {
	_ = s.running[component].Kill()
	delete(s.running, component)
}

// renew has cert-manager issue a Certificate anew at once, as cmctl renew does.
func (s *site) renew(name string) {
	s.Helper()
	before := s.current(name)
	s.Until("cert-manager has issued "+name+" anew", func() (string, bool) {
		c := &certmanagerv1.Certificate{}
		s.Must(s.client.Get(s.Context(), types.NamespacedName{Namespace: install.Namespace, Name: name}, c))
		if s.current(name) != before {
			return "", true
		}
		if !slices.ContainsFunc(c.Status.Conditions, func(c certmanagerv1.CertificateCondition) bool {
			return c.Type == certmanagerv1.CertificateConditionIssuing && c.Status == cmmeta.ConditionTrue
		}) {
			now := metav1.Now()
			c.Status.Conditions = append(c.Status.Conditions, certmanagerv1.CertificateCondition{
				Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered", LastTransitionTime: &now,
			})
			_ = s.client.Status().Update(s.Context(), c) // a conflict is tried again
		}
		return fmt.Sprintf("%+v", c.Status.Conditions), false
	})
}

// leaf returns the certificate in a Secret, or nil.
func (s *site) leaf(name string) *x509.Certificate {
	secret, err := s.clientset.CoreV1().Secrets(install.Namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	all, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return nil
	}
	return all[0]
}

// current returns the hash of the certificate in a Secret, empty if there is none.
func (s *site) current(name string) string {
	if leaf := s.leaf(name); leaf != nil {
		return hash(leaf)
	}
	return ""
}

// validity returns for how long the certificate in a Secret is valid from its issue.
func (s *site) validity(name string) time.Duration {
	if leaf := s.leaf(name); leaf != nil {
		return leaf.NotAfter.Sub(leaf.NotBefore)
	}
	return 0
}

// rests waits until both replicas serve the certificate in a Secret, and so many authorities are trusted.
func (s *site) rests(name string, trusted ...int) {
	s.Helper()
	s.Until("both replicas serve the certificate of Secret "+name, func() (string, bool) {
		found, err := install.ReadCertificates(s.Context(), s.clientset)
		s.Must(err)
		want := s.current(name)
		return fmt.Sprintf("%+v, want %s", found, want), want != "" && slices.Equal(found.Served, []string{want, want}) &&
			(len(trusted) == 0 || slices.Contains(trusted, found.Trusted))
	})
}

// remove deletes an object in the namespace of the release.
func (s *site) remove(what string) {
	s.Helper()
	s.kubectl("delete " + what + " --wait=false --namespace " + install.Namespace)
}

// another waits until a Secret has another certificate than before.
func (s *site) another(name, before string) {
	s.Helper()
	s.Until("Secret "+name+" has another certificate", func() (string, bool) {
		now := s.current(name)
		return now, now != "" && now != before
	})
}
