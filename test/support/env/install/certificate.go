package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What replicas report on their Leases, as package replicas has it, whose tests use this one.
const replicaLabel, certificateAnnotation = "sallyport.dev/replica", "sallyport.dev/certificate"

// Certificates are those that the webhooks are served with.
type Certificates struct {
	// Served is what each replica says that it serves.
	Served []string
	// Trusted counts the authorities that the API server trusts to certify them.
	Trusted int
}

// ReadCertificates gives them as they are at the moment.
func ReadCertificates(ctx context.Context, c kubernetes.Interface) (*Certificates, error) {
	leases, err := c.CoordinationV1().Leases(Namespace).List(ctx, metav1.ListOptions{LabelSelector: replicaLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("reading the replicas' Leases: %w", err)
	}
	configured, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the installed webhook configuration: %w", err)
	}
	found := &Certificates{Trusted: strings.Count(string(configured.Webhooks[0].ClientConfig.CABundle), "BEGIN CERTIFICATE")}
	for i := range leases.Items {
		found.Served = append(found.Served, leases.Items[i].Annotations[certificateAnnotation])
	}
	return found, nil
}

// One is what so many replicas serve, and what alone is trusted; empty while it is being replaced by another.
func (c *Certificates) One(replicas int) string {
	if len(c.Served) != replicas || c.Trusted != 1 || len(slices.Compact(slices.Sorted(slices.Values(c.Served)))) != 1 {
		return ""
	}
	return c.Served[0]
}
