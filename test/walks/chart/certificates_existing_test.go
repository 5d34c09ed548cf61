package chart

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"sallyport.dev/sallyport/test/support/env/install"
)

// theirs is the Secret of mode existing.
const theirs = "their-certificate"

// authority is a CA of somebody else, and when its certificates are valid.
type authority struct {
	*x509.Certificate
	key crypto.Signer
}

// issueTo creates a certificate for the webhooks by the CA, or one of a new CA if it is nil.
func (s *certSite) issueTo(by *authority, from, until time.Time) *authority {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.Must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	s.Must(err)
	template := &x509.Certificate{SerialNumber: serial, NotBefore: from, NotAfter: until, Subject: pkix.Name{CommonName: "their CA " + serial.String()}}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		by = &authority{template, key}
	} else {
		template.DNSNames = []string{install.Service + "." + install.Namespace + ".svc"}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, key.Public(), by.key)
	s.Must(err)
	made, err := x509.ParseCertificate(der)
	s.Must(err)
	return &authority{made, key}
}

// puts writes the Secret of mode existing.
func (s *certSite) puts(leaf, ca *authority) {
	s.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(leaf.key)
	s.Must(err)
	encode := func(c *authority) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) }
	secrets := s.clientset.CoreV1().Secrets(install.Namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: theirs}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey: encode(leaf), corev1.TLSPrivateKeyKey: key, "ca.crt": encode(ca),
	}}
	if s.current(theirs) == "" {
		_, err = secrets.Create(s.Context(), secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(s.Context(), secret, metav1.UpdateOptions{})
	}
	s.Must(err)
}

// existingSecret has somebody else write the Secret, well and badly. What cannot be used is not served.
func existingSecret(s *certSite) {
	now := func() time.Time { return time.Now().Add(-time.Hour) }
	year := time.Now().AddDate(1, 0, 0)
	ca := s.issueTo(nil, now(), year)
	s.step("mode existing", faults{}, func(s *certSite) {
		s.puts(s.issueTo(ca, now(), year), ca)
		s.upgrade(short, "certs.mode=existing", "certs.existingSecret="+theirs)
		s.rests(theirs, 1)
	})
	old := s.issueTo(nil, now(), time.Now().Add(-time.Minute))
	for _, bad := range []struct {
		name     string
		leaf, ca *authority
	}{
		{"of an expired CA", s.issueTo(old, now(), year), old},
		{"of another CA than ca.crt", s.issueTo(ca, now(), year), s.issueTo(nil, now(), year)},
		{"that has expired", s.issueTo(ca, now(), time.Now().Add(-time.Minute)), ca},
		{"that is not valid yet", s.issueTo(ca, year.AddDate(0, 0, -1), year), ca},
	} {
		s.step("existing: one "+bad.name, faults{}, func(s *certSite) {
			served := s.current(theirs)
			s.puts(bad.leaf, bad.ca)
			s.stays(served, 10*time.Second)
			s.puts(s.issueTo(ca, now(), year), ca)
			s.rests(theirs, 1)
		})
	}
	s.step("existing: another CA", faults{}, func(s *certSite) {
		other := s.issueTo(nil, now(), year)
		s.puts(s.issueTo(other, now(), year), other)
		s.rests(theirs, 1)
	})
	s.step("existing: one that is valid in 5 s, for clocks that are behind", faults{}, func(s *certSite) {
		from := time.Now().Add(5 * time.Second)
		s.puts(s.issueTo(ca, from, from.Add(longer)), ca)
		s.rests(theirs, 1)
		s.puts(s.issueTo(ca, now(), year), ca)
		s.rests(theirs, 1)
	})
}

// immutable has Sallyport's own Secret be one that can neither be used nor changed: the leader says so, and replicas go on serving.
func (s *certSite) immutable() {
	s.Helper()
	served, secrets := s.current(own), s.clientset.CoreV1().Secrets(install.Namespace)
	broken, err := secrets.Get(s.Context(), own, metav1.GetOptions{})
	s.Must(err)
	s.remove("secret " + own)
	for key := range broken.Data {
		broken.Data[key] = []byte("garbage")
	}
	broken.ObjectMeta = metav1.ObjectMeta{Name: own}
	broken.Immutable = ptr.To(true)
	s.Until("the Secret is the broken one", func() (string, bool) {
		_, err := secrets.Create(s.Context(), broken, metav1.CreateOptions{})
		if err != nil {
			_ = secrets.Delete(s.Context(), own, metav1.DeleteOptions{})
		}
		return "", err == nil
	})
	s.Until("an event says what to do", func() (string, bool) {
		told := s.kubectl("get events.events.k8s.io --namespace " + install.Namespace + " --field-selector reason=CertificateUnusable -o jsonpath={.items[*].note}")
		return told, strings.Contains(told, "immutable") && strings.Contains(told, "delete secret "+own)
	})
	s.stays(served, time.Second)
	s.remove("secret " + own)
	s.another(own, served)
	s.rests(own, 1)
}
