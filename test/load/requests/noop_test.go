package requests_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// noop has the folder of the certificate of a webhook that allows everything, in the environment of a process that is to be one.
const noop = "SALLYPORT_NOOP_WEBHOOK"

// beNoop serves a webhook of controller-runtime that allows everything, in a process of its own, until its standard input ends.
func beNoop() {
	folder, is := os.LookupEnv(noop)
	if !is {
		return
	}
	if err := serveNoop(folder); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveNoop(folder string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return err
	}
	fmt.Printf("https://%s\n", listener.Addr())
	served := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &admission.Webhook{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }),
	}}
	go func() { _ = served.Serve(listener) }()
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test ends
	return served.Close()
}

// addNoop has such a webhook asked about ConfigMaps that are made in namespaces with a label.
func (b *bench) addNoop(label string) {
	b.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	b.must(err)
	folder := b.TempDir()
	b.must(os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600))
	b.must(os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600))
	self, err := os.Executable()
	b.must(err)
	command := exec.Command(self)
	command.Env = append(os.Environ(), noop+"="+folder)
	in, err := command.StdinPipe()
	b.must(err)
	out, err := command.StdoutPipe()
	b.must(err)
	b.must(command.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	var url string
	_, err = fmt.Fscanln(out, &url)
	b.must(err)
	b.others[filepath.Base(self)] = command.Process.Pid

	effects, equivalent, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Equivalent, admissionregistrationv1.Fail
	b.must(b.Client.Create(b.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "noop"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "noop.example.org", AdmissionReviewVersions: []string{"v1"}, SideEffects: &effects, MatchPolicy: &equivalent, FailurePolicy: &fail,
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: certificate},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"measured": label}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}))
}
