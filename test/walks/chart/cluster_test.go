package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sallyport.dev/sallyport/charts"
)

// clusterSite is a real cluster, whose nodes have the image.
type clusterSite struct {
	kubectl, helm, kubeconfig string
	image                     []string
	folder                    string
	rest                      *rest.Config
	clientset                 kubernetes.Interface
}

func newClusterSite(t *testing.T, kubeconfig, image string) *clusterSite {
	t.Helper()
	s := &clusterSite{kubeconfig: kubeconfig, folder: t.TempDir()}
	at := strings.LastIndex(image, ":")
	if at < 0 {
		t.Fatalf("%s is %q and must be an image with its tag", imageVariable, image)
	}
	s.image = []string{"image.registry=", "image.repository=" + image[:at], "image.tag=" + image[at+1:]}
	err := os.CopyFS(s.folder, charts.Files)
	if err == nil {
		s.rest, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err == nil {
		s.rest.QPS = -1
		s.clientset, err = kubernetes.NewForConfig(s.rest)
	}
	if err == nil {
		s.kubectl, err = exec.LookPath("kubectl")
	}
	if err == nil {
		s.helm, err = exec.LookPath("helm")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *clusterSite) tools() (kubectl, helm, kubeconfig string) {
	return s.kubectl, s.helm, s.kubeconfig
}

func (s *clusterSite) config() *rest.Config { return s.rest }

func (s *clusterSite) chart() string { return filepath.Join(s.folder, "sallyport") }

func (s *clusterSite) settings() []string { return s.image }

func (s *clusterSite) installed(*testing.T) {}

func (s *clusterSite) uninstalled(*testing.T) {}

// ask goes through the API server's proxy, which reaches a pod by its own address.
func (s *clusterSite) ask(ctx context.Context, pod string, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	text, err := s.clientset.CoreV1().RESTClient().Post().
		AbsPath("/api/v1/namespaces", namespace, "pods", "https:"+pod+":9443", "proxy", "validate").
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	answer := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(text, answer); err != nil || answer.Response == nil {
		return nil, fmt.Errorf("pod %s answered without a review: %w", pod, err)
	}
	return answer.Response, nil
}

func (s *clusterSite) local() *localSite { return nil }
