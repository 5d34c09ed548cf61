package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
	testsite "sallyport.dev/sallyport/test/support/site"
)

// localSite is a local control plane, on which pods are processes.
type localSite struct {
	plane     *env.ControlPlane
	sallyport *install.Sallyport
	kubelet   *install.Kubelet
	helm      string
	audit     string
	options   install.Options
	logs      install.Log
}

func newLocalSite(t *testing.T) *localSite {
	t.Helper()
	s := &localSite{audit: filepath.Join(t.TempDir(), "audit.log")}
	binary, err := install.Build(t.Context(), t.TempDir(), "sallyport.dev/sallyport/cmd/sallyport")
	if err != nil {
		t.Fatal(err)
	}
	s.options = install.Options{
		Binary: binary, Logs: &s.logs,
		// The chart has ten seconds for a shutdown; in one of them not everybody knows on a busy machine that a replica ends.
		Flags: append(testsite.SoonFollowed(), "--shutdown-delay", "3s", "--poll-interval", "200ms"),
	}
	if s.helm, err = env.Helm(t.Context(), t.Logf); err != nil {
		t.Fatal(err)
	}
	s.plane, err = env.Start(t.Context(), env.Options{
		ControllerManager: true, ControllerManagerFlags: install.ControllerManagerFlags(), AuditLog: s.audit,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.sallyport, err = install.Unpack(s.plane); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.kubelet != nil {
			if t.Failed() {
				t.Logf("the pods:\n%s", s.kubelet.Describe(context.WithoutCancel(t.Context())))
			}
			if err := s.kubelet.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.sallyport.Remove(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of what the managers logged:\n%s", install.Tail(s.logs.String(), 100))
		}
	})
	return s
}

func (s *localSite) tools() (kubectl, helm, kubeconfig string) {
	return s.plane.Assets.Kubectl, s.helm, s.plane.Kubeconfig()
}

func (s *localSite) config() *rest.Config { return s.plane.Config }

func (s *localSite) chart() string { return s.sallyport.Chart() }

// settings: the usual port is one that only root may listen on.
func (s *localSite) settings() []string {
	return []string{fmt.Sprintf("webhook.service.port=%d", install.Port)}
}

func (s *localSite) installed(t *testing.T) {
	t.Helper()
	err := s.sallyport.Adopt(t.Context())
	if err == nil {
		s.kubelet, err = s.sallyport.NewKubelet(t.Context(), s.options)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *localSite) uninstalled(t *testing.T) {
	t.Helper()
	if err := s.kubelet.Close(); err != nil {
		t.Error(err)
	}
	s.kubelet = nil
}

func (s *localSite) ask(ctx context.Context, pod string, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	return s.kubelet.Ask(ctx, pod, review)
}

func (s *localSite) local() *localSite { return s }
