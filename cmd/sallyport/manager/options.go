package manager

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template/ova"
	"sallyport.dev/sallyport/webhooks/grants"
)

// Options are the flags of the manager.
type Options struct {
	// WebhookHost and WebhookPort are where the webhooks are served.
	WebhookHost string
	WebhookPort int
	// CertDir is where the certificate of the webhooks is. If it is empty the manager makes one itself and keeps it in
	// CertificateSecret; it is for WebhookService, and trusted by the WebhookConfiguration. Policies are registered beside that.
	CertDir                                                 string
	CertificateSecret, WebhookService, WebhookConfiguration string
	// CertificateSettle is how long API servers may take to learn of a new authority, CertificatePoll how often the leader looks
	// meanwhile.
	CertificateSettle, CertificatePoll time.Duration
	// ClientCAFile has the authorities of the certificates that clients of the webhooks must show, and ClientNames the common names
	// that these must have. If it is empty anybody is served; if there are no names, whoever shows one.
	ClientCAFile string
	ClientNames  []string
	// ReplicaName and ReplicaUID are those of the pod: how this replica is known to the others.
	ReplicaName, ReplicaUID string
	// ShutdownDelay is how long to go on serving, not ready any more, when the manager is to end.
	ShutdownDelay time.Duration
	// MetricsAddress and HealthAddress are where metrics and probes are served.
	MetricsAddress, HealthAddress string
	// ShippedPolicies is the ConfigMap with the policies of this release, whose version is Release. If it is empty none are shipped.
	ShippedPolicies, Release string
	// Shipment is a hash of what this replica was started to ship. It gets ready when that could be applied.
	Shipment string
	// Records is where decision records go, and RecordsDeniedOnly leaves out those of requests that were admitted.
	Records           string
	RecordsDeniedOnly bool
	// TestRunTimeout and TestRunMemory are what the test run of a RegoPolicy may take before it is stored.
	TestRunTimeout time.Duration
	TestRunMemory  resource.QuantityValue
	// HelmRelease is the name of the release that Sallyport is installed by, for commands in messages.
	HelmRelease string
	// Patchable is what policies may patch beside Sallyport's own kinds.
	Patchable grants.Kinds
	// AuditInterval is how often existing objects are held against the policies that want it.
	AuditInterval time.Duration
	// AuditReports has what they find reported, as openreports.io has it.
	AuditReports bool
	// AuditNames has the status of policies name the first objects that they find.
	AuditNames bool

	// Namespace is where Sallyport is installed: its lease is there, and the Secrets with the credentials of vCenters.
	Namespace string

	// TemplateCache is the folder with what templates are made from, which may take TemplateCacheSize, and TemplateForbidden are the
	// ranges of addresses that nothing is downloaded from.
	TemplateCache     string
	TemplateCacheSize resource.QuantityValue
	TemplateForbidden []net.IPNet

	// PodRuntime has machines of kind pod run, on nodes with PodNodeSelector.
	PodRuntime      bool
	PodNodeSelector map[string]string
	// PodSnapshotRepository is the registry that they are moved through, and empty if they cannot be. Its certificate may be of an
	// authority in PodSnapshotCAFile.
	PodSnapshotRepository, PodSnapshotCAFile string

	// LeaderElect has only one of several replicas run the reconcilers: the one that has the lease.
	LeaderElect                               bool
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// CallTimeout bounds every call of a runtime.
	CallTimeout time.Duration
	// PollInterval is how long to wait before looking again at what a runtime is doing, ResyncInterval before looking again at
	// a machine that is as it should be.
	PollInterval, ResyncInterval time.Duration
}

// addFlags adds the flags to a command.
func (o *Options) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.WebhookHost, "webhook-host", "", "`address` to serve the webhooks on; empty means all")
	flags.IntVar(&o.WebhookPort, "webhook-port", 9443, "port to serve the webhooks on")
	flags.StringVar(&o.CertDir, "cert-dir", "", "`folder` with tls.crt and tls.key for the webhooks, which are read again when they change; empty means that the manager makes its certificate itself")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", "", "`file` with the authorities, in PEM, of the certificates that API servers must show to the webhooks; it is read again when it changes; empty means that anybody is served")
	flags.StringSliceVar(&o.ClientNames, "client-names", nil, "common `names` of the certificates that API servers may show; empty means all of these authorities")
	flags.StringVar(&o.CertificateSecret, "certificate-secret", "sallyport-certificate", "`Secret` that the manager keeps its own certificate in")
	flags.DurationVar(&o.CertificateSettle, "certificate-settle", 30*time.Second, "how long API servers are given to learn of a change of the webhook configurations")
	flags.DurationVar(&o.CertificatePoll, "certificate-poll", 5*time.Second, "how long the leader waits between two looks at a rotation of the certificate that is under way")
	flags.StringVar(&o.WebhookService, "webhook-service", "sallyport-webhook", "`Service` through which the API server reaches the webhooks; the manager's own certificate is for it")
	flags.StringVar(&o.WebhookConfiguration, "webhook-configuration", "sallyport", "`name` of the mutating and of the validating webhook configuration, which the manager has trust its own certificate; policies for kinds that are not Sallyport's are registered beside them, in those of that name with -policies")
	flags.StringVar(&o.ReplicaName, "replica-name", "", "`name` of this replica, which no other has: that of its pod; empty means the host name")
	flags.StringVar(&o.ReplicaUID, "replica-uid", "", "`UID` of the pod of this replica, so that what the replica reports is deleted with it; empty outside of a pod")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0, "how long to go on serving, but not ready, after the manager was told to end, so that requests find another replica")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "`address` of the metrics; 0 turns them off")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 turns them off")
	flags.StringVar(&o.ShippedPolicies, "shipped-policies", "", "`ConfigMap` with the policies that this release ships, which are kept as RegoPolicies; empty means none")
	flags.StringVar(&o.Release, "release", "", "`version` of this release; a ConfigMap of --shipped-policies from another release is left alone")
	flags.StringVar(&o.Shipment, "shipment", "", "`hash` of the policies that this replica is to ship: it is not ready before a ConfigMap of --shipped-policies with that hash could be applied; empty means any hash")
	flags.StringVar(&o.Records, "decision-records", "stdout", "`where` decision records go, a line of JSON each: stdout, off, or a file, to which they are appended")
	flags.BoolVar(&o.RecordsDeniedOnly, "decision-records-denied-only", false, "record only the requests that were refused")
	flags.DurationVar(&o.TestRunTimeout, "rehearsal-timeout", TestRunTimeout, "how long it may take to try a RegoPolicy before it is stored; less than API servers wait for the webhooks")
	o.TestRunMemory.Quantity = *resource.NewQuantity(TestRunMemory, resource.BinarySI)
	flags.Var(&o.TestRunMemory, "rehearsal-memory", "how much memory it may take, such as 256Mi; two are tried at once, in processes of their own")
	flags.StringVar(&o.HelmRelease, "helm-release", "", "`name` of the Helm release, for the commands in messages")
	flags.Var(&o.Patchable, "patchable", grants.Usage())
	flags.DurationVar(&o.AuditInterval, "audit-interval", time.Hour, "how long after an audit of existing objects, for RegoPolicies with backgroundAudit, the next one begins; 0 leaves it at those that a change of the policy brings")
	flags.BoolVar(&o.AuditNames, "audit-names", true, "name the first objects that violate a RegoPolicy in its status; false if people may read RegoPolicies who may not see the objects of all namespaces")
	flags.BoolVar(&o.AuditReports, "audit-reports", false, "write what audits find as Reports and ClusterReports of openreports.io, too; without those kinds in the cluster none are written")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "run the reconcilers in one replica only, the one that has the lease; every replica serves the webhooks")
	flags.StringVar(&o.Namespace, "namespace", "", "`namespace` that Sallyport is installed in, with its lease and the Secrets of VSphereServers; empty means that of the pod, or "+defaultNamespace+" outside of a pod")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 15*time.Second, "how long replicas wait for a leader that is silent before one takes its lease, and how long that one waits again before it sends anything to a runtime")
	flags.DurationVar(&o.RenewDeadline, "renew-deadline", 10*time.Second, "how long a leader tries to renew its lease before it gives up")
	flags.DurationVar(&o.RetryPeriod, "retry-period", 2*time.Second, "how long replicas wait between two looks at the lease")
	flags.DurationVar(&o.CallTimeout, "runtime-call-timeout", runtime.DefaultCallTimeout, "how long a call to a runtime may take; together with --renew-deadline not more than --lease-duration")
	flags.DurationVar(&o.PollInterval, "poll-interval", 2*time.Second, "how long to wait before looking again at what a runtime is doing to a machine")
	flags.StringVar(&o.TemplateCache, "template-cache", filepath.Join(os.TempDir(), "sallyport-templates"), "`folder` to keep the OVAs in that VSphereTemplates are made from")
	o.TemplateCacheSize.Quantity = *resource.NewQuantity(TemplateCacheSize, resource.BinarySI)
	flags.Var(&o.TemplateCacheSize, "template-cache-size", "how much room the OVAs may take together, such as 20Gi; a larger one is refused")
	flags.IPNetSliceVar(&o.TemplateForbidden, "template-forbidden-ranges", LocalRanges(), "`ranges` of addresses that no OVA is downloaded from; they should have those of the cluster's Pods and Services, too")
	flags.BoolVar(&o.PodRuntime, "pod-runtime", false, "run VirtualMachines whose runtime is pod, as Pods that agents on nodes make machines of")
	flags.StringToStringVar(&o.PodNodeSelector, "pod-node-selector", map[string]string{"type": "virtual-kubelet"}, "`labels` of the nodes that have such an agent")
	flags.StringVar(&o.PodSnapshotRepository, "pod-snapshot-repository", "", "what `repositories` with the snapshots begin with through which such machines are moved between nodes, such as registry.example.com/machines; empty means that they cannot be moved")
	flags.StringVar(&o.PodSnapshotCAFile, "pod-snapshot-ca-file", "", "`file` with authorities, in PEM, that the certificate of that registry may be of, beside those that the system trusts; it is read at the start")
	flags.DurationVar(&o.ResyncInterval, "resync-interval", 10*time.Hour, "how long to wait before looking again at a machine that is as it should be and of which its runtime tells nothing new")
}

// TemplateCacheSize is the default of --template-cache-size.
const TemplateCacheSize = 20 << 30

// LocalRanges is the default of --template-forbidden-ranges.
func LocalRanges() (all []net.IPNet) {
	for _, prefix := range ova.LocalAddresses() {
		bits := prefix.Addr().BitLen()
		all = append(all, net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)})
	}
	return all
}

// forbidden gives the ranges in the form in which addresses are held against them.
func (o *Options) forbidden() (all []netip.Prefix) {
	for _, ipnet := range o.TemplateForbidden {
		if address, is := netip.AddrFromSlice(ipnet.IP); is {
			ones, _ := ipnet.Mask.Size()
			all = append(all, netip.PrefixFrom(address, ones))
		}
	}
	return all
}

// patchable is what policies may patch.
func (o *Options) patchable(namespace string) grants.Patchable {
	return grants.Patchable{Kinds: o.Patchable, By: grants.Release{Name: o.HelmRelease, Namespace: namespace}}
}

// retryJitter is the factor by which leader election lengthens the retry period at most.
const retryJitter = 1.2

// validate checks what flags must be to each other. The sum is what safety rests on: a leader that cannot renew its lease any
// more has given up, and its last call has ended, before another can take the lease.
func (o *Options) validate() error {
	if err := longerThanNothing(
		duration{"--runtime-call-timeout", o.CallTimeout}, duration{"--certificate-settle", o.CertificateSettle},
		duration{"--certificate-poll", o.CertificatePoll}, duration{"--rehearsal-timeout", o.TestRunTimeout},
	); err != nil {
		return err
	}
	for _, flag := range []duration{{"--shutdown-delay", o.ShutdownDelay}, {"--audit-interval", o.AuditInterval}} {
		if flag.value < 0 {
			return fmt.Errorf("%s is %v and must not be less than 0", flag.name, flag.value)
		}
	}
	for _, flag := range []struct{ name, value string }{
		{"--certificate-secret", o.CertificateSecret}, {"--webhook-service", o.WebhookService}, {"--webhook-configuration", o.WebhookConfiguration},
	} {
		if o.CertDir == "" && flag.value == "" {
			return fmt.Errorf("%s is empty, and the manager needs it to make its certificates itself; --cert-dir would have it take them from files", flag.name)
		}
	}
	if o.WebhookConfiguration == "" {
		return errors.New("--webhook-configuration is empty, and the manager learns from it how API servers reach the policies that it registers")
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" {
		return errors.New("--client-names needs --client-ca-file: names are those in certificates that an authority of it has signed")
	}
	if o.PodRuntime && len(o.PodNodeSelector) == 0 {
		return errors.New("--pod-node-selector is empty: whoever may create VirtualMachines could run containers on any node; " +
			"name a label that only nodes with an agent have")
	}
	if o.PodSnapshotCAFile != "" && o.PodSnapshotRepository == "" {
		return errors.New("--pod-snapshot-ca-file needs --pod-snapshot-repository: without it no registry is asked")
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
		return fmt.Errorf("--lease-duration is %v and must be whole seconds, because a lease says it in seconds", o.LeaseDuration)
	case o.RenewDeadline <= longest:
		return fmt.Errorf("--renew-deadline is %v and must be more than %v, which is %v times --retry-period",
			o.RenewDeadline, longest, retryJitter)
	case o.RenewDeadline+o.CallTimeout > o.LeaseDuration:
		return fmt.Errorf("--renew-deadline %v and --runtime-call-timeout %v are together more than --lease-duration %v: "+
			"a call of a leader that has lost its lease could go on while the next one sends", o.RenewDeadline, o.CallTimeout, o.LeaseDuration)
	}
	return nil
}

// duration is the value of a flag.
type duration struct {
	name  string
	value time.Duration
}

func longerThanNothing(flags ...duration) error {
	for _, flag := range flags {
		if flag.value <= 0 {
			return fmt.Errorf("%s is %v and must be more than 0", flag.name, flag.value)
		}
	}
	return nil
}
