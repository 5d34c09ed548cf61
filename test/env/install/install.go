// Package install puts Sallyport on a local control plane: definitions, a Service, a certificate, webhook configurations,
// and the manager as a process of its own that listens on the Service's address.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/env"
)

// Where the webhook configurations of the chart expect the webhooks.
const (
	Namespace = "sallyport-system"
	Service   = "sallyport-webhook"
	Port      = 9443
)

const patience = time.Minute

// Sallyport is a running installation.
type Sallyport struct {
	// Address is where the manager listens: a loopback address that is the Service's own.
	Address string
	// CA is the certificate authority of the webhooks, in PEM.
	CA []byte

	manager *Manager
	dir     string
}

// Start installs Sallyport and returns when the API server has its requests judged. The definitions must be there.
func Start(ctx context.Context, cp *env.ControlPlane, o Options) (*Sallyport, error) {
	s, err := Prepare(ctx, cp)
	if err != nil {
		return nil, err
	}
	if err := s.Resume(ctx, cp, o); err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Prepare installs everything but a manager.
func Prepare(ctx context.Context, cp *env.ControlPlane) (*Sallyport, error) {
	address, err := cp.Service(ctx, Namespace, Service, Port)
	if err != nil {
		return nil, fmt.Errorf("making the webhook's Service: %w", err)
	}
	s := &Sallyport{Address: address}
	if s.dir, err = os.MkdirTemp("", "sallyport-"); err != nil {
		return nil, err
	}
	if err = s.certify(); err == nil {
		err = s.register(ctx, cp)
	}
	if err != nil {
		return nil, errors.Join(err, s.Remove())
	}
	return s, nil
}

// Resume starts the manager, also after Stop, and returns when the API server has requests judged by it.
func (s *Sallyport) Resume(ctx context.Context, cp *env.ControlPlane, o Options) (err error) {
	if s.manager, err = s.Manager(cp, o, Ports{Webhook: Port, Metrics: 8080, Health: 8081}); err != nil {
		return err
	}
	if err := s.manager.AwaitReady(ctx); err != nil {
		return err
	}
	return s.AwaitJudgement(ctx, cp)
}

// certify makes a certificate for the Service's name.
func (s *Sallyport) certify() error {
	host := fmt.Sprintf("%s.%s.svc", Service, Namespace)
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate for %s: %w", host, err)
	}
	s.CA = certificate // the leaf and the authority that signed it
	if err := os.WriteFile(filepath.Join(s.dir, "tls.crt"), certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "tls.key"), key, 0o600)
}

// Metrics gives the manager's metrics as text.
func (s *Sallyport) Metrics(ctx context.Context) (string, error) { return s.manager.Metrics(ctx) }

// register applies the webhook configurations.
func (s *Sallyport) register(ctx context.Context, cp *env.ControlPlane) error {
	c, err := client.New(cp.Config, client.Options{})
	if err != nil {
		return err
	}
	mutating, validating, err := charts.Webhooks()
	if err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = s.CA
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = s.CA
	}
	for _, configuration := range []client.Object{mutating, validating} {
		if err := c.Create(ctx, configuration); err != nil {
			return fmt.Errorf("creating the webhook configuration: %w", err)
		}
	}
	return nil
}

// AwaitJudgement returns when the API server has requests judged.
func (s *Sallyport) AwaitJudgement(ctx context.Context, cp *env.ControlPlane) error {
	c, err := client.New(cp.Config, client.Options{})
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return judged(ctx, c), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to call the webhooks: %w", err)
	}
	return nil
}

// judged tries, without leaving anything behind, an object that the mutating webhook changes and one that the validating
// webhook refuses.
func judged(ctx context.Context, c client.Client) bool {
	machine := object("VirtualMachine", map[string]any{"runtime": map[string]any{"kubevirt": map[string]any{}}})
	if err := c.Create(ctx, machine, client.DryRunAll); err != nil || len(machine.GetFinalizers()) == 0 {
		return false
	}
	operation := object("VirtualMachineOperation", map[string]any{"type": "Start", "virtualMachineName": "sallyport-probe"})
	err := c.Create(ctx, operation, client.DryRunAll)
	return err != nil && strings.Contains(err.Error(), "denied the request")
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": "sallyport-probe", "namespace": metav1.NamespaceDefault},
	}}
}

// Stop ends the manager and returns when it has ended. What it installed stays.
func (s *Sallyport) Stop() error {
	if s.manager == nil {
		return nil
	}
	return s.manager.Stop()
}

// Remove ends the manager and removes its certificate. What it installed in the cluster stays.
func (s *Sallyport) Remove() error {
	return errors.Join(s.Stop(), os.RemoveAll(s.dir))
}
