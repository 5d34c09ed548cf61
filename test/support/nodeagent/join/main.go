// Command join has two virtual nodes join the cluster of KUBECONFIG, whose agent makes machines of Pods that do nothing, and serves
// a registry for their snapshots. With it one sees VirtualMachines of kind pod be moved in any cluster. It ends with Ctrl-C, and leaves the Nodes.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/test/support/nodeagent"
)

func main() {
	nodes := flag.String("nodes", "virtual-1,virtual-2", "the `names` of the nodes")
	address := flag.String("registry", "127.0.0.1:5000", "the `address` of the registry, at which the manager and this program reach it")
	authority := flag.String("authority", "registry.pem", "the `file` to write the authority of the registry's certificate to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, strings.Split(*nodes, ","), *address, *authority)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, nodes []string, address, authority string) error {
	trusted, err := serve(address, authority)
	if err != nil {
		return fmt.Errorf("serving the registry: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	agent := nodeagent.New(c, nodes...)
	agent.Scheduled, agent.Transport = true, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	if err := agent.Join(ctx); err != nil && !apierrors.IsAlreadyExists(errors.Unwrap(err)) {
		return err
	}
	go agent.Run(ctx, func(err error) { log.Print(err) })
	for ctx.Err() == nil {
		for _, name := range nodes {
			if err := renew(ctx, c, name); err != nil {
				log.Print(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(beat):
		}
	}
	for _, wrong := range agent.Violations() {
		log.Print(wrong)
	}
	return nil
}

// serve has a registry go on until the program ends, and gives who trusts it.
func serve(address, authority string) (*x509.CertPool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	go func() { log.Fatal(http.Serve(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0))))) }()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	return trusted, os.WriteFile(authority, certificate, 0o600)
}

// beat is how often a kubelet says that its node is there.
const beat = 10 * time.Second

// renew says so.
func renew(ctx context.Context, c client.Client, node string) error {
	lease := coordinationv1.Lease(node, "kube-node-lease").WithSpec(
		coordinationv1.LeaseSpec().WithHolderIdentity(node).WithLeaseDurationSeconds(40).WithRenewTime(metav1.NowMicro()))
	if err := c.Apply(ctx, lease, client.FieldOwner("nodeagent"), client.ForceOwnership); err != nil {
		return fmt.Errorf("renewing the Lease of Node %s: %w", node, err)
	}
	return nil
}
