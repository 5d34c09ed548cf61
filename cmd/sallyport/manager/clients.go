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

// clients are the accepted clients of the webhooks: their certificate has a trusted authority and one of the names.
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

// read loads the file if it has changed.
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
		return fmt.Errorf("%s contains no PEM certificate", c.file)
	}
	c.authorities, c.changed = pool, info.ModTime()
	return nil
}

// trusted returns the current authorities. If the file cannot be read, they stay unchanged.
func (c *clients) trusted() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.read()
	return c.authorities
}

// TLS configures a server to require a client certificate in every handshake.
func (c *clients) TLS(config *tls.Config) {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = c.trusted()
	config.SessionTicketsDisabled = true // a session that is taken up again would not be verified
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return errors.New("the client presented no trusted certificate")
		}
		if name := state.VerifiedChains[0][0].Subject.CommonName; len(c.names) > 0 && !slices.Contains(c.names, name) {
			return fmt.Errorf("the client certificate has common name %q, which is not in --client-names", name)
		}
		return nil
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, c.trusted()
		return now, nil
	}
}
