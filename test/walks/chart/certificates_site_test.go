package chart

import (
	"context"
	"crypto/x509"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// The Secrets of Sallyport's own certificate and of cert-manager's.
const own, issued = "sallyport-certificate", "sallyport-webhook-tls"

// settle is --certificate-settle.
const settle = time.Second

// certSite is an installed Sallyport of two replicas, a second API server that asks it, and cert-manager's programs.
type certSite struct {
	*replicated
	second    *rest.Config  // another API server
	issues    client.Client // knows cert-manager's kinds
	clientset kubernetes.Interface
	traffic   *traffic
	program   string       // cert-manager
	kube      string       // the administrator's kubeconfig
	issuing   *install.Log // of cert-manager
	running   map[string]*env.Daemon
	rows      *[]string
}

// newCertSite installs the chart, for certificates of cert-manager that are valid for some time.
func newCertSite(t *testing.T, validity time.Duration) *certSite {
	t.Helper()
	s := &certSite{issuing: &install.Log{}, running: map[string]*env.Daemon{}, rows: &[]string{}}
	s.replicated = replicate(t, []string{"--certificate-settle", settle.String(), "--certificate-duration", validity.String()})
	var err error
	s.second, err = s.Plane.AddAPIServer(t.Context())
	s.Must(err)
	s.kube, err = s.Plane.UserKubeconfig("cert-manager", "system:masters")
	s.Must(err)
	s.clientset, err = kubernetes.NewForConfig(s.Plane.Config)
	s.Must(err)
	scheme := runtime.NewScheme()
	utilruntime.Must(certmanagerv1.AddToScheme(scheme))
	s.issues, err = client.New(s.Plane.Config, client.Options{Scheme: scheme})
	s.Must(err)
	t.Cleanup(func() {
		if t.Failed() {
			s.describe()
		}
		for name := range s.running {
			s.stop(name)
		}
	})
	s.Must(s.Sallyport.AwaitJudgement(t.Context()))
	return s
}

// valid are the options of replicas for which cert-manager's certificates are valid for some time. Of a flag that is there twice the last counts.
func (s *certSite) valid(validity time.Duration) install.Options {
	o := s.Options
	o.Flags = append(slices.Clone(o.Flags), "--certificate-duration", validity.String())
	return o
}

// upgrade changes values of the release, and the validity of cert-manager's certificates, and replaces the replicas.
func (s *certSite) upgrade(validity time.Duration, values ...string) {
	s.Helper()
	s.Kubelet.Options(s.valid(validity))
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	s.Must(s.Sallyport.Upgrade(s.Context(), args...))
	s.kubectl("rollout restart deployment/" + install.Release + " --namespace " + install.Namespace)
	s.rolledOut()
}

// installCertManager makes its kinds known and starts its controllers.
func (s *certSite) installCertManager() {
	s.Helper()
	folder, err := exec.CommandContext(s.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager").Output()
	s.Must(err)
	s.kubectl("apply --server-side -f " + filepath.Join(strings.TrimSpace(string(folder)), "deploy", "crds"))
	s.kubectl("wait --for=condition=Established crd certificates.cert-manager.io issuers.cert-manager.io certificaterequests.cert-manager.io --timeout=1m")
	s.start("controller")
}

// describe shows what there is after a failure.
func (s *certSite) describe() {
	for _, line := range []string{"get certificates,issuers,certificaterequests,secrets -o wide", "get events --sort-by=.lastTimestamp"} {
		stdout, stderr, _ := s.Plane.Kubectl(context.Background(), append(strings.Fields(line), "--namespace", install.Namespace)...)
		s.Logf("kubectl %s:\n%s%s", line, stdout, stderr)
	}
	s.Logf("the end of the managers' logs:\n%s\nof cert-manager's:\n%s", install.Tail(s.Logs.String(), 40), install.Tail(s.issuing.String(), 60))
}

// start starts a component of cert-manager.
func (s *certSite) start(component string, flags ...string) {
	s.Helper()
	command := exec.Command(s.program, append(flags, component)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kube)
	command.Stdout, command.Stderr = s.issuing, s.issuing
	var err error
	s.running[component], err = env.StartDaemon(command)
	s.Must(err)
}

func (s *certSite) stop(component string) {
	_ = s.running[component].Kill()
	delete(s.running, component)
}

// renew has cert-manager issue a Certificate anew at once, as cmctl renew does.
func (s *certSite) renew(name string) {
	s.Helper()
	before := s.current(name)
	s.Until("cert-manager has issued "+name+" anew", func() (string, bool) {
		c := &certmanagerv1.Certificate{}
		s.Must(s.issues.Get(s.Context(), types.NamespacedName{Namespace: install.Namespace, Name: name}, c))
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
			_ = s.issues.Status().Update(s.Context(), c) // a conflict is tried again
		}
		return fmt.Sprintf("%+v", c.Status.Conditions), false
	})
}

// leaf returns the certificate in a Secret, or nil.
func (s *certSite) leaf(name string) *x509.Certificate {
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
func (s *certSite) current(name string) string {
	if leaf := s.leaf(name); leaf != nil {
		return hash(leaf)
	}
	return ""
}

// validity returns for how long the certificate in a Secret is valid from its issue.
func (s *certSite) validity(name string) time.Duration {
	if leaf := s.leaf(name); leaf != nil {
		return leaf.NotAfter.Sub(leaf.NotBefore)
	}
	return 0
}

// rests waits until both replicas serve the certificate in a Secret, and so many authorities are trusted.
func (s *certSite) rests(name string, trusted ...int) {
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
func (s *certSite) remove(what string) {
	s.Helper()
	s.kubectl("delete " + what + " --wait=false --namespace " + install.Namespace)
}

// another waits until a Secret has another certificate than before.
func (s *certSite) another(name, before string) {
	s.Helper()
	s.Until("Secret "+name+" has another certificate", func() (string, bool) {
		now := s.current(name)
		return now, now != "" && now != before
	})
}
