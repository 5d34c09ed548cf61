package manager

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/step"
)

// authority makes certificates.
type authority struct {
	*testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t}
	a.certificate, a.key, a.pem = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) make(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.certificate != nil {
		parent, signer = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return made, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// leaf is a certificate for that name and use.
func (a *authority) leaf(name string, use x509.ExtKeyUsage) *tls.Certificate {
	a.Helper()
	made, key, _ := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{use}})
	return &tls.Certificate{Certificate: [][]byte{made.Raw}, PrivateKey: key}
}

// serve starts a server with these flags, and gives what speaks to it with that certificate, in a connection of its own.
func serveWith(t *testing.T, line string) (speak func(certificate *tls.Certificate, http2 bool) (string, error), address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	listener.Close()
	o := parsed(t, line)
	o.WebhookHost, o.WebhookPort = host(address), port(address)
	own := newAuthority(t)
	certificate := own.leaf("server", x509.ExtKeyUsageServerAuth)
	s, err := o.newServer(func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Register("/echo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if len(r.TLS.VerifiedChains) > 0 {
			who = r.TLS.VerifiedChains[0][0].Subject.CommonName
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, who)
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own.pem)
	speak = func(certificate *tls.Certificate, http2 bool) (string, error) {
		config := &tls.Config{RootCAs: roots, ServerName: "localhost"}
		if certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2, DisableKeepAlives: true}}
		response, err := client.Post("https://"+address+"/echo", "", strings.NewReader("x"))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response.Proto + " " + string(text), err
	}
	for s.StartedChecker()(nil) != nil {
		time.Sleep(time.Millisecond)
	}
	return speak, address
}

// Who shows no certificate of the authority, or not one of the names, is refused in the handshake; all others are known.
func TestClientsAreVerified(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ours.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	apiserver, kubelet := ours.leaf("kube-apiserver", x509.ExtKeyUsageClientAuth), ours.leaf("system:node:n", x509.ExtKeyUsageClientAuth)
	for line, wants := range map[string]map[string]*tls.Certificate{
		"": {"nobody": nil},
		"--client-ca-file " + file: {
			"refused": nil, "kube-apiserver": apiserver, "system:node:n": kubelet,
			"refused, another authority": others.leaf("kube-apiserver", x509.ExtKeyUsageClientAuth), "refused, of a server": ours.leaf("kube-apiserver", x509.ExtKeyUsageServerAuth),
		},
		"--client-ca-file " + file + " --client-names a,kube-apiserver": {"kube-apiserver": apiserver, "refused": kubelet, "refused, none": nil},
	} {
		speak, _ := serveWith(t, line)
		for want, certificate := range wants {
			got, err := speak(certificate, false)
			if refused := strings.HasPrefix(want, "refused"); refused != (err != nil) || !refused && got != "HTTP/1.1 "+want {
				t.Errorf("%q: got %q, %v, want %s", line, got, err, want)
			}
		}
	}
}

// Another authority counts as soon as it is in the file, and a file that is broken changes nothing.
func TestAuthoritiesOfClientsAreReadAgain(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	at := time.Now().Add(-time.Hour)
	write := func(text []byte) {
		at = at.Add(time.Second)
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write(first.pem)
	speak, _ := serveWith(t, "--client-ca-file "+file)
	one, two := first.leaf("one", x509.ExtKeyUsageClientAuth), second.leaf("two", x509.ExtKeyUsageClientAuth)
	for _, step := range []struct {
		text     []byte
		one, two bool
	}{{first.pem, true, false}, {append(bytes.Clone(first.pem), second.pem...), true, true}, {second.pem, false, true}, {[]byte("nothing"), false, true}} {
		write(step.text)
		if _, err := speak(one, false); (err == nil) != step.one {
			t.Errorf("one: %v, want %t", err, step.one)
		}
		if _, err := speak(two, false); (err == nil) != step.two {
			t.Errorf("two: %v, want %t", err, step.two)
		}
	}
}

// A replica is ready as long as its server completes handshakes with the certificate that it serves, with and without certificates of
// clients. Its probes leave no errors in the log.
func TestReadinessConnectsToTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, newAuthority(t).pem, 0o600); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	for _, line := range []string{"", "--client-ca-file " + file} {
		o, own := parsed(t, line), newAuthority(t)
		o.WebhookHost, o.WebhookPort = "127.0.0.1", port(freeAddress(t))
		certificates := []*tls.Certificate{own.leaf("server", x509.ExtKeyUsageServerAuth), own.leaf("other", x509.ExtKeyUsageServerAuth)}
		var calls, differ atomic.Int32
		s, err := o.newServer(func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return certificates[calls.Add(1)*differ.Load()%2], nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		ready := s.StartedChecker()
		if ready(nil) == nil {
			t.Errorf("%q: ready before the start", line)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Start(ctx) }()
		step.T{T: t}.Eventually("it is ready", func() bool { return ready(nil) == nil })
		differ.Store(1)
		if err := ready(nil); err == nil || !strings.Contains(err.Error(), "another certificate answers") {
			t.Errorf("%q: another certificate is served, and the probe says %v", line, err)
		}
		differ.Store(0)
		if err := ready(nil); err != nil {
			t.Errorf("%q: it does not become ready again: %v", line, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := ready(nil); err == nil || !strings.Contains(err.Error(), "connecting to the webhook server") {
			t.Errorf("%q: nothing accepts connections, and the probe says %v", line, err)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("the probes left in the log:\n%s", &logged)
	}
}

func TestClientFlags(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, "--client-names a", "--client-names", "--client-ca-file")
	for file, want := range map[string]string{"/not/there": "no such file", empty: "contains no PEM certificate"} {
		if _, err := parsed(t, "--client-ca-file "+file).newServer(); err == nil || !strings.Contains(err.Error(), "--client-ca-file") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

// API servers speak HTTP/1.1 to webhooks. In HTTP/2 one connection could have any number of requests.
func TestOnlyOneRequestAtATimeInAConnection(t *testing.T) {
	speak, _ := serveWith(t, "")
	if got, err := speak(nil, true); err != nil || got != "HTTP/1.1 nobody" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Whoever has most connections loses the oldest of them to others.
func TestConnectionsAreBounded(t *testing.T) {
	const others = 20
	d := &door{most: others + 2}
	enter := func(address string) *connection {
		c := &connection{address: address, door: d}
		if gone := d.enter(c); gone != nil {
			gone.address += " gone"
		}
		return c
	}
	var all []*connection
	for i := range others {
		all = append(all, enter(fmt.Sprint("other ", i)))
	}
	greedy := []*connection{enter("a"), enter("a")}
	all = append(all, enter("late"), greedy[1])
	for _, c := range all {
		if strings.HasSuffix(c.address, " gone") {
			t.Errorf("%s, and %s", c.address, greedy[0].address)
		}
	}
	if d.remove(greedy[0]); d.all != others+2 {
		t.Errorf("%d connections", d.all)
	}
	for _, c := range append(all, all[0]) {
		d.remove(c)
	}
	if d.all != 0 || len(d.lists) != 0 {
		t.Errorf("%d connections are left, %v", d.all, d.lists)
	}
}

// Connections without a request, and those whose body does not come, do not keep others out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	for name, begin := range map[string]func(net.Conn) error{
		"no request": func(net.Conn) error { return nil },
		"no body": func(conn net.Conn) error {
			client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			_, err := fmt.Fprintf(client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
			return err
		},
	} {
		speak, address := serveWith(t, "")
		for range mostConnections + 10 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if err := begin(conn); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := speak(nil, false); err != nil || got != "HTTP/1.1 nobody" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
