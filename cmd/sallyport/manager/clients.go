package manager

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// clients are those who may speak to the webhooks: who show a certificate of an authority, and have one of the names.
type clients struct {
	file  string
	names []string // common names; none means any

	mu          sync.Mutex
	authorities *x509.CertPool
	changed     time.Time // the file
}

func newClients(file string, names []string) (*clients, error) {
	c := &clients{file: file, names: names}
	return c, c.read()
}

// read takes over the file if it has changed.
func (c *clients) read() error {
	info, err := os.Stat(c.file)
	if err != nil {
		return err
	}
	if c.authorities != nil && info.ModTime().Equal(c.changed) {
		return nil
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no certificate in PEM", c.file)
	}
	c.authorities, c.changed = pool, info.ModTime()
	return nil
}

// trusted are the authorities as the file has them now. One that cannot be read leaves them as they are.
func (c *clients) trusted() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.read()
	return c.authorities
}

// TLS has a server demand a certificate in every handshake.
func (c *clients) TLS(config *tls.Config) {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = c.trusted()
	config.SessionTicketsDisabled = true // a session that is taken up again would not be verified
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return errors.New("the client showed no certificate that is trusted")
		}
		if name := state.VerifiedChains[0][0].Subject.CommonName; len(c.names) > 0 && !slices.Contains(c.names, name) {
			return fmt.Errorf("the client is %q, which --client-names does not name", name)
		}
		return nil
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, c.trusted()
		return now, nil
	}
}
