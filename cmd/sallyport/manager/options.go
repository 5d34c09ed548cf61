package manager

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/certs"
	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template/ova"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// Options are the flags of the manager; addFlags has the description of each.
type Options struct {
	WebhookHost                                           string
	WebhookPort                                           int
	CertificateMode, WebhookService, WebhookConfiguration string
	CertificateSecret, ExistingSecret                     string
	CertificateIssuer                                     string
	CertificateDuration                                   time.Duration
	CABundle                                              string
	CertificateSettle, CertificatePoll                    time.Duration
	ClientCAFile                                          string
	ClientNames                                           []string
	ReplicaName, ReplicaUID                               string
	ShutdownDelay                                         time.Duration
	MetricsAddress, HealthAddress                         string
	ShippedPolicies, Release                              string
	Shipment                                              string
	Records                                               string
	AllRecords                                            bool
	TestRunTimeout                                        time.Duration
	TestRunMemory                                         resource.QuantityValue
	HelmRelease, HelmValues                               string
	Patchable                                             grants.Kinds
	AuditInterval                                         time.Duration
	AuditReports                                          bool
	AuditNames                                            bool

	Namespace string

	TemplateForbidden []net.IPNet

	ReadOnly bool

	DiskImages           bool
	DiskImageSecretHosts []string

	PodRuntime                               bool
	PodNodeSelector                          map[string]string
	PodSnapshotRepository, PodSnapshotCAFile string
	PodSnapshotTokenHosts                    []string

	UncopiedLabels []string

	VSphereRuntime, KubeVirtRuntime bool
	Pools, Templates, PodDrains     bool

	LeaderElect                               bool
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	CallTimeout                               time.Duration
	PollInterval, ResyncInterval              time.Duration
}

func (o *Options) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.WebhookHost, "webhook-host", "", "`address` to serve the webhooks on; if empty, all addresses")
	flags.IntVar(&o.WebhookPort, "webhook-port", 9443, "port to serve the webhooks on")
	flags.StringVar(&o.CertificateMode, "certificate-mode", string(certs.Auto), "`source` of the certificate of the webhooks: cert-manager, self-signed, existing, or auto, which is cert-manager if the cluster has it and self-signed otherwise")
	flags.StringVar(&o.ExistingSecret, "existing-secret", "", "name of a `Secret` with tls.crt, tls.key and ca.crt that somebody else maintains, for --certificate-mode=existing")
	flags.StringVar(&o.CertificateIssuer, "certificate-issuer", "", "`[KIND[.GROUP]/]NAME` of the issuer of cert-manager's certificate, of kind Issuer by default; if empty, the manager creates one")
	flags.DurationVar(&o.CertificateDuration, "certificate-duration", 90*24*time.Hour, "how long a certificate of cert-manager is valid, which renews it after two thirds of that; cert-manager requires at least 1h")
	flags.StringVar(&o.CABundle, "ca-bundle", bySallyport, "`who` sets the caBundle of the webhook configurations: sallyport, or cainjector of cert-manager; or the PEM text of the authority of --existing-secret or --certificate-issuer, for a Secret without ca.crt, which Sallyport then sets")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", "", "PEM `file` with the authorities that sign the client certificates of API servers, reloaded when it changes; if empty, the webhooks do not require a client certificate")
	flags.StringSliceVar(&o.ClientNames, "client-names", nil, "common `names` of accepted client certificates; if empty, all certificates that an authority of --client-ca-file signed")
	flags.StringVar(&o.CertificateSecret, "certificate-secret", "sallyport-certificate", "name of the `Secret` that stores the manager's own certificate")
	flags.DurationVar(&o.CertificateSettle, "certificate-settle", 30*time.Second, "how long to wait until API servers use a changed webhook configuration")
	flags.DurationVar(&o.CertificatePoll, "certificate-poll", 5*time.Second, "how often the leader checks the progress of a certificate rotation")
	flags.StringVar(&o.WebhookService, "webhook-service", "sallyport-webhook", "name of the `Service` that API servers call the webhooks through; the manager's own certificate is valid for it")
	flags.StringVar(&o.WebhookConfiguration, "webhook-configuration", "sallyport", "`name` of the mutating and the validating webhook configuration, in which the manager sets the authority of its own certificate; policies on kinds that are not Sallyport's are registered in separate configurations with the suffix -policies")
	flags.StringVar(&o.ReplicaName, "replica-name", "", "unique `name` of this replica, normally the name of its pod; if empty, the host name")
	flags.StringVar(&o.ReplicaUID, "replica-uid", "", "`UID` of the pod of this replica, which then owns the Lease of the replica; empty outside of a pod")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0, "how long to keep serving, but not ready, after a termination signal, so that requests move to other replicas")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "`address` to serve metrics on; 0 disables metrics")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "`address` to serve /healthz and /readyz on; 0 disables them")
	flags.StringVar(&o.ShippedPolicies, "shipped-policies", "", "name of the `ConfigMap` with the shipped policies, which the leader applies as RegoPolicies; if empty, none are applied")
	flags.StringVar(&o.Release, "release", "", "`version` of this release; the manager ignores a ConfigMap of --shipped-policies with another version")
	flags.StringVar(&o.Shipment, "shipment", "", "`hash` of the shipped policies: the replica becomes ready only when a ConfigMap of --shipped-policies with this hash can be applied; if empty, any hash")
	flags.StringVar(&o.Records, "decision-records", "stdout", "`destination` of decision records (one JSON object on each line): stdout, off, or a file to append to")
	flags.BoolVar(&o.AllRecords, "decision-records-all", false,
		"also record the requests that all policies allow without a warning, for replaying them; this costs a quarter of a replica's CPU time")
	flags.DurationVar(&o.TestRunTimeout, "test-run-timeout", TestRunTimeout, "timeout for the test run of a RegoPolicy at admission; must be shorter than the timeout of the webhooks")
	o.TestRunMemory.Quantity = *resource.NewQuantity(testrun.DefaultMemory, resource.BinarySI)
	flags.Var(&o.TestRunMemory, "test-run-memory", "memory limit of a test run at admission, such as 256Mi; up to two test runs run at once, each in its own process")
	flags.StringVar(&o.HelmRelease, "helm-release", "", "`name` of the Helm release, used in commands that messages suggest")
	flags.StringVar(&o.HelmValues, "helm-values", "", "`prefix` of the chart's values in commands that messages suggest, such as \"sallyport.\" if the chart is a subchart of that name")
	flags.Var(&o.Patchable, "patchable", grants.Usage())
	flags.DurationVar(&o.AuditInterval, "audit-interval", time.Hour, "interval between audits of existing objects for RegoPolicies with spec.backgroundAudit: Enabled; 0 audits only when the policy changes and on request")
	flags.BoolVar(&o.AuditNames, "audit-names", true, "list the first violating objects in the status of RegoPolicies; disable it if users can read RegoPolicies but not the objects of all namespaces")
	flags.BoolVar(&o.AuditReports, "audit-reports", false, "also write audit results as Reports and ClusterReports of openreports.io, if the cluster has these kinds")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "run the reconcilers only in the replica that holds the lease; all replicas serve the webhooks")
	flags.StringVar(&o.Namespace, "namespace", "", "`namespace` of Sallyport, with its lease and the Secrets of VSphereServers; if empty, the namespace of the pod, or "+defaultNamespace+" outside of a pod")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 15*time.Second, "how long replicas wait for an unresponsive leader before one of them takes over its lease; the new leader waits for the same time before it calls a runtime")
	flags.DurationVar(&o.RenewDeadline, "renew-deadline", 10*time.Second, "how long the leader tries to renew its lease before it stops")
	flags.DurationVar(&o.RetryPeriod, "retry-period", 2*time.Second, "how often replicas try to acquire or renew the lease")
	flags.DurationVar(&o.CallTimeout, "runtime-call-timeout", runtime.DefaultCallTimeout, "timeout of a call to a runtime; the sum with --renew-deadline must not exceed --lease-duration")
	flags.DurationVar(&o.PollInterval, "poll-interval", 2*time.Second, "how often to poll a runtime for the progress of an operation")
	flags.IPNetSliceVar(&o.TemplateForbidden, "template-forbidden-ranges", LocalRanges(), "IP `ranges` that OVAs are not downloaded from; include the ranges of the cluster's Pods and Services")
	flags.BoolVar(&o.ReadOnly, "read-only", false, "send nothing to runtimes: only admit requests and observe machines, disks and templates")
	flags.BoolVar(&o.DiskImages, "disk-images", false, "import VMDiskImages with CDI, and take snapshots of them")
	flags.StringSliceVar(&o.DiskImageSecretHosts, "disk-image-secret-hosts", nil, "`hosts` that may be sent the credentials of VMDiskImages without the annotation sallyport.dev/allowed-hosts of the Secret: HOST, HOST:PORT, *.DOMAIN or *")
	flags.BoolVar(&o.PodRuntime, "pod-runtime", false, "enable the runtime pod: VirtualMachines run as Pods on nodes with an agent that creates machines from Pods")
	flags.BoolVar(&o.PodDrains, "pod-drains", true, "move machines of the runtime pod off nodes that are drained")
	flags.StringToStringVar(&o.PodNodeSelector, "pod-node-selector", map[string]string{"type": "virtual-kubelet"}, "`labels` of the nodes with an agent for the runtime pod")
	flags.StringVar(&o.PodSnapshotRepository, "pod-snapshot-repository", "", "prefix of the `repositories` for snapshots, which migrate machines of the runtime pod between nodes, such as registry.example.com/machines; if empty, these machines cannot migrate")
	flags.StringVar(&o.PodSnapshotCAFile, "pod-snapshot-ca-file", "", "PEM `file` with authorities to trust for the snapshot registry, in addition to those of the system; read once at startup")
	flags.StringSliceVar(&o.PodSnapshotTokenHosts, "pod-snapshot-token-hosts", nil, "`hosts` that may be sent the credentials for the snapshot registry, if it names them as the source of its tokens; its own host always may")
	flags.StringSliceVar(&o.UncopiedLabels, "uncopied-labels", runtime.DefaultUncopied(), "`labels` of VirtualMachines that their Pods and KubeVirt VirtualMachines do not get, as KEY or PREFIX/*")
	flags.BoolVar(&o.KubeVirtRuntime, "kubevirt-runtime", false, "enable the runtime kubevirt: VirtualMachines are VirtualMachines of KubeVirt, once the cluster serves its API")
	flags.BoolVar(&o.VSphereRuntime, "vsphere-runtime", true, "enable the runtime vsphere, with VSphereServers and VSphereTemplates")
	flags.BoolVar(&o.Pools, "pools", true, "reconcile VirtualMachinePools")
	flags.BoolVar(&o.Templates, "templates", true, "reconcile VSphereTemplates")
	flags.DurationVar(&o.ResyncInterval, "resync-interval", 10*time.Hour, "how often to reconcile a machine that is in its desired state and has no new events from its runtime")
}

// LocalRanges is the default of --template-forbidden-ranges.
func LocalRanges() (all []net.IPNet) {
	for _, prefix := range ova.LocalAddresses() {
		bits := prefix.Addr().BitLen()
		all = append(all, net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)})
	}
	return all
}

// forbidden returns the ranges in the form that addresses are compared with.
func (o *Options) forbidden() (all []netip.Prefix) {
	for _, ipnet := range o.TemplateForbidden {
		if address, is := netip.AddrFromSlice(ipnet.IP); is {
			ones, _ := ipnet.Mask.Size()
			all = append(all, netip.PrefixFrom(address, ones))
		}
	}
	return all
}

func (o *Options) patchable(namespace string) grants.Patchable {
	return grants.Patchable{Kinds: o.Patchable, By: grants.Release{Name: o.HelmRelease, Namespace: namespace, Within: o.HelmValues}}
}

// retryJitter is the factor by which leader election lengthens the retry period at most.
const retryJitter = 1.2

// validate checks the flags. Safety depends on the sum: a leader that cannot renew its lease stops, and its last call ends, before
// another replica can take the lease.
func (o *Options) validate() error {
	if err := longerThanNothing(
		duration{"--runtime-call-timeout", o.CallTimeout}, duration{"--certificate-settle", o.CertificateSettle},
		duration{"--certificate-duration", o.CertificateDuration},
		duration{"--certificate-poll", o.CertificatePoll}, duration{"--test-run-timeout", o.TestRunTimeout},
	); err != nil {
		return err
	}
	for _, flag := range []duration{{"--shutdown-delay", o.ShutdownDelay}, {"--audit-interval", o.AuditInterval}} {
		if flag.value < 0 {
			return fmt.Errorf("invalid %s %v: must not be less than 0", flag.name, flag.value)
		}
	}
	for _, flag := range []struct{ name, value string }{
		{"--certificate-secret", o.CertificateSecret}, {"--webhook-service", o.WebhookService}, {"--webhook-configuration", o.WebhookConfiguration},
	} {
		if flag.value == "" {
			return fmt.Errorf("%s must not be empty", flag.name)
		}
	}
	if err := o.validateCertificates(); err != nil {
		return err
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		return errors.New("--client-names requires --client-ca-file")
	}
	if o.PodRuntime && len(o.PodNodeSelector) == 0 {
		return errors.New("--pod-node-selector must not be empty: users who create VirtualMachines could run containers on any node; " +
			"set a label that only nodes with an agent have")
	}
	if len(o.PodSnapshotTokenHosts) > 0 && o.PodSnapshotRepository == "" {
		return errors.New("--pod-snapshot-token-hosts requires --pod-snapshot-repository")
	}
	if o.PodSnapshotCAFile != "" && o.PodSnapshotRepository == "" {
		return errors.New("--pod-snapshot-ca-file requires --pod-snapshot-repository")
	}
	if err := o.validateTestRuns(); err != nil {
		return err
	}
	if !o.LeaderElect {
		return nil
	}
	if err := longerThanNothing(
		duration{"--lease-duration", o.LeaseDuration}, duration{"--renew-deadline", o.RenewDeadline}, duration{"--retry-period", o.RetryPeriod},
	); err != nil {
		return err
	}
	switch longest := time.Duration(retryJitter * float64(o.RetryPeriod)); {
	case o.LeaseDuration%time.Second != 0:
		return fmt.Errorf("invalid --lease-duration %v: must be a number of whole seconds", o.LeaseDuration)
	case o.RenewDeadline <= longest:
		return fmt.Errorf("invalid --renew-deadline %v: must be more than %v, which is %v times --retry-period",
			o.RenewDeadline, longest, retryJitter)
	case o.RenewDeadline+o.CallTimeout > o.LeaseDuration:
		return fmt.Errorf("the sum of --renew-deadline %v and --runtime-call-timeout %v must not exceed --lease-duration %v: "+
			"otherwise a runtime call of an old leader could overlap with calls of the new leader", o.RenewDeadline, o.CallTimeout, o.LeaseDuration)
	}
	return nil
}

type duration struct {
	name  string
	value time.Duration
}

func longerThanNothing(flags ...duration) error {
	for _, flag := range flags {
		if flag.value <= 0 {
			return fmt.Errorf("invalid %s %v: must be more than 0", flag.name, flag.value)
		}
	}
	return nil
}
