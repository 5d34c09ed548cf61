package why

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/replicas"
)

// certificateArgument selects the report about the certificate of the webhooks.
const certificateArgument = "certificate"

type certificateReport struct {
	Mode      string `json:"mode,omitempty"`
	Namespace string `json:"namespace"`
	// Secrets are the possible sources of the certificate.
	Secrets []certificateSecret `json:"secrets"`
	// Replicas is what each live replica reports to serve, by name: a Secret, or an error.
	Replicas map[string]string `json:"replicas"`
	// CertManager is the state of cert-manager's Certificate, "" if there is none.
	CertManager string `json:"certManager,omitempty"`
	// Unknown is what could not be read.
	Unknown []string `json:"unknown,omitempty"`

	issued string // the name of cert-manager's Certificate and Secret
}

type certificateSecret struct {
	Name     string     `json:"name"`
	Issuer   string     `json:"issuer,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`
	// Problem is why it cannot be used, or which webhook configurations do not trust it; "" if they all do.
	Problem string `json:"problem,omitempty"`

	hash string
}

// gatherCertificate gathers which certificate replicas serve, and which configurations trust it.
func gatherCertificate(ctx context.Context, c *cli.Cluster, now time.Time) (cli.Report, error) {
	_, configuration, err := c.NameOfChart(ctx)
	if err != nil {
		return nil, err
	}
	if configuration == nil || len(configuration.Webhooks) == 0 || configuration.Webhooks[0].ClientConfig.Service == nil {
		return nil, fmt.Errorf("finding the certificate of the webhooks: ValidatingWebhookConfiguration %s does not exist, cannot be read, or names no Service", cli.Product)
	}
	service := configuration.Webhooks[0].ClientConfig.Service
	r := &certificateReport{Namespace: service.Namespace, Replicas: map[string]string{}, issued: service.Name + "-tls"}
	flags := map[string]string{}
	installed, err := c.FindInstallation(ctx, service.Namespace)
	r.addUnknown(err)
	if installed.Deployment != nil {
		for _, container := range installed.Deployment.Spec.Template.Spec.Containers {
			for _, arg := range container.Args {
				name, value, _ := strings.Cut(arg, "=")
				flags[name] = value
			}
		}
	}
	r.Mode = flags["--certificate-mode"]
	trusts := readAuthorities(ctx, c, r)
	for _, name := range []string{cmp.Or(flags["--certificate-secret"], "sallyport-certificate"), r.issued, flags["--existing-secret"]} {
		if name != "" {
			r.secret(ctx, c, name, service.Name+"."+service.Namespace+".svc", trusts, now)
		}
	}
	r.served(ctx, c, now)
	r.certManager(ctx, c)
	return r, nil
}

func (r *certificateReport) addUnknown(err error) {
	if err != nil {
		r.Unknown = append(r.Unknown, err.Error())
	}
}

func readAuthorities(ctx context.Context, c *cli.Cluster, r *certificateReport) map[string]*x509.CertPool {
	all := map[string]*x509.CertPool{}
	for _, name := range []string{cli.Product, cli.PoliciesConfiguration} {
		validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
		r.addUnknown(client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Name: name}, validating)))
		r.addUnknown(client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Name: name}, mutating)))
		for i := range validating.Webhooks {
			all["ValidatingWebhookConfiguration "+name] = authoritiesOf(validating.Webhooks[i].ClientConfig.CABundle)
		}
		for i := range mutating.Webhooks {
			all["MutatingWebhookConfiguration "+name] = authoritiesOf(mutating.Webhooks[i].ClientConfig.CABundle)
		}
	}
	return all
}

func authoritiesOf(bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool
}

// secret adds a Secret if it exists.
func (r *certificateReport) secret(ctx context.Context, c *cli.Cluster, name, host string, trusts map[string]*x509.CertPool, now time.Time) {
	secret := &corev1.Secret{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err):
		return
	case err != nil:
		r.addUnknown(err)
		return
	}
	s := certificateSecret{Name: name}
	defer func() { r.Secrets = append(r.Secrets, s) }()
	chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		s.Problem = "its tls.crt cannot be read: " + err.Error()
		return
	}
	leaf, between := chain[0], x509.NewCertPool()
	for _, other := range chain[1:] {
		between.AddCert(other)
	}
	sum := sha256.Sum256(leaf.Raw)
	s.hash, s.Issuer, s.NotAfter = hex.EncodeToString(sum[:]), cmp.Or(leaf.Issuer.String(), "a CA without a name"), &leaf.NotAfter
	var not []string
	for configuration, roots := range trusts {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host, CurrentTime: now}); err != nil {
			not = append(not, fmt.Sprintf("%s: %v", configuration, err))
		}
	}
	slices.Sort(not)
	if len(not) > 0 {
		s.Problem = "not trusted by " + strings.Join(not, "; ")
	}
}

func (r *certificateReport) served(ctx context.Context, c *cli.Cluster, now time.Time) {
	leases := &coordinationv1.LeaseList{}
	if err := c.List(ctx, leases, client.InNamespace(r.Namespace), client.MatchingLabels{replicas.Label: "true"}); err != nil {
		r.addUnknown(err)
		return
	}
	seen := cli.NewSigns(func() time.Time { return now })
	for i := range leases.Items {
		lease := &leases.Items[i]
		if !seen.Held(lease) {
			continue
		}
		hash := lease.Annotations[replicas.CertificateAnnotation]
		serves := "a certificate that is in none of these Secrets"
		if hash == "" {
			serves = "no certificate that is trusted"
		}
		for _, s := range r.Secrets {
			if hash != "" && s.hash == hash {
				serves = s.Name
			}
		}
		r.Replicas[lease.Name] = serves
	}
}

// noCertManager is the state in mode cert-manager if the cluster has no cert-manager.
const noCertManager = "cert-manager.io/v1 is not served: install cert-manager, or set certs.mode to self-signed"

// certManager reads the state of the Certificate that cert-manager issues, if there is one.
func (r *certificateReport) certManager(ctx context.Context, c *cli.Cluster) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("cert-manager.io/v1")
	o.SetKind("Certificate")
	if err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.issued}, o); err != nil {
		switch {
		case meta.IsNoMatchError(err) && r.Mode == "cert-manager":
			r.CertManager = noCertManager
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			r.addUnknown(err)
		}
		return
	}
	r.CertManager = "no status: cert-manager has not seen it"
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var states []string
	for _, one := range conditions {
		if fields, is := one.(map[string]any); is {
			states = append(states, strings.TrimSpace(fmt.Sprintf("%v=%v %v", fields["type"], fields["status"], fields["message"])))
		}
	}
	if attempts, found, _ := unstructured.NestedInt64(o.Object, "status", "failedIssuanceAttempts"); found && attempts > 0 {
		states = append(states, fmt.Sprintf("%d failed attempts", attempts))
	}
	if len(states) > 0 {
		r.CertManager = strings.Join(states, "; ")
	}
}

func (r *certificateReport) Text(p *cli.Page) {
	p.Line("Certificate of the webhooks in namespace %s\n", r.Namespace)
	p.Row("Mode:", r.Mode)
	var secrets, serving []string
	for _, s := range r.Secrets {
		text := s.Name
		if s.NotAfter != nil {
			text += fmt.Sprintf(": issued by %s, valid until %s", s.Issuer, s.NotAfter.UTC().Format(time.RFC3339))
		}
		state := cmp.Or(s.Problem, "trusted by all webhook configurations")
		if !slices.Contains(slices.Collect(maps.Values(r.Replicas)), s.Name) {
			state = "not served, " + state
		}
		secrets = append(secrets, cli.OneLine(text+": "+state))
	}
	p.Row("Secrets:", cmp.Or(strings.Join(secrets, "\n"), "none"))
	for name, serves := range r.Replicas {
		serving = append(serving, name+" serves "+serves)
	}
	slices.Sort(serving)
	p.Row("Replicas:", cmp.Or(strings.Join(serving, "\n"), "none is live"))
	p.Row("cert-manager:", cli.OneLine(r.CertManager))
	p.Row("Unknown:", strings.Join(r.Unknown, "\n"))
	p.Row("Next step:", r.next())
}

// next returns the command that helps if something is wrong.
func (r *certificateReport) next() string {
	good := len(r.Replicas) > 0
	for _, serves := range r.Replicas {
		good = good && slices.ContainsFunc(r.Secrets, func(s certificateSecret) bool { return s.Name == serves && s.Problem == "" })
	}
	switch {
	case good, r.CertManager == noCertManager:
		return ""
	case strings.Contains(r.CertManager, "=False") || r.CertManager != "" && len(r.Secrets) == 0:
		return commands.Line("kubectl", "describe", "certificates.cert-manager.io", r.issued, "-n", r.Namespace)
	case len(r.Replicas) == 0:
		return commands.Line("kubectl", "get", "pods", "-n", r.Namespace)
	}
	return commands.Line("kubectl", "logs", "-l", cli.NameLabel+"="+cli.Product, "-n", r.Namespace, "--tail=100")
}
