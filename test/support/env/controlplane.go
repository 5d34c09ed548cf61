package env

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is for one component; warm and alone they take 1 to 4 seconds, but a test machine may be busy building.
const startTimeout = 90 * time.Second

// Options say what a control plane is to be like. The zero value is etcd and the API server.
type Options struct {
	// ControllerManager runs kube-controller-manager too: garbage collection, deletion of namespaces, Deployments,
	// HorizontalPodAutoscalers, ServiceAccounts. Its controllers act under their own identities, as in a real cluster.
	ControllerManager bool
	// CRDs are installed before the controller manager starts. It learns of later ones (InstallCRDs) only every 30
	// seconds, and until then neither collects garbage among their objects nor scales them.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// AuditLog is a file that the API server writes audit events to, one JSON object per line, of all requests at level
	// Metadata, with the annotations of admission webhooks. Empty means none. An event is written just after its reply.
	AuditLog string
	// APIServer is the path of another API server than that of Binaries, such as OldAPIServer.
	APIServer string
	// APIServerFlags and ControllerManagerFlags are further flags, without the leading dashes. They win over ours.
	APIServerFlags, ControllerManagerFlags map[string]string
	// Logs gets a copy of what all components log. Without it their logs are only kept for LogTail.
	Logs io.Writer
	// Logf hears where binaries were found, and that they are being built, which takes minutes. Without it standard error does.
	Logf func(format string, args ...any)
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Config reaches the API server as a member of system:masters, without any limit of requests on the client's side.
	Config *rest.Config
	// Assets are the programs it runs, and kubectl.
	Assets Assets
	// ServiceRange is the range of its Service addresses, for instance 127.96.7.0/24.
	ServiceRange string

	dir        runDir
	token      string // of the administrator
	kubeconfig string
	logs       map[string]*tail
	clientset  kubernetes.Interface

	helmMu sync.Mutex
	helm   string // its path, once it was asked for

	usersMu sync.Mutex // envtest's certificate authority is not safe for concurrent use
	plane   *envtest.ControlPlane

	stopping sync.Once
	stopErr  error
	onStop   []func() // called in reverse order
}

// Start starts a control plane and returns when it serves. It runs until Stop is called or ctx ends, and at the latest
// as long as this process. An error carries the last lines of the log of the component that failed.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	logf := opts.Logf
	if logf == nil {
		logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	wanted := slices.DeleteFunc(slices.Clone(controlPlanePrograms), func(p program) bool {
		return p.name == ControllerManager && !opts.ControllerManager || p.name == APIServer && opts.APIServer != ""
	})
	assets, err := binaries(ctx, logf, wanted)
	if err != nil {
		return nil, fmt.Errorf("binaries of the control plane: %w", err)
	}
	assets.APIServer = cmp.Or(opts.APIServer, assets.APIServer)
	dir, err := os.MkdirTemp("", "sallyport-env-")
	if err != nil {
		return nil, fmt.Errorf("folder of the control plane: %w", err)
	}
	cp := &ControlPlane{Assets: assets, dir: runDir(dir), logs: map[string]*tail{}}
	for _, component := range []string{Etcd, APIServer, ControllerManager} {
		cp.logs[component] = newTail(opts.Logs)
	}
	if err := cp.start(ctx, opts); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), cp.Stop())
	}
	context.AfterFunc(ctx, func() { _ = cp.Stop() })
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context, opts Options) error {
	dismiss, err := cp.dir.guard()
	if err != nil {
		return err
	}
	cp.onStop = append(cp.onStop, dismiss)
	// envtest waits for its components without looking at a context, but notices when they end.
	defer context.AfterFunc(ctx, func() { _ = cp.dir.kill("*") })()

	cidr, release, err := leaseServiceRange()
	if err != nil {
		return err
	}
	cp.ServiceRange = cidr
	cp.onStop = append(cp.onStop, release)

	if err := cp.startEtcd(); err != nil {
		return cp.failed(Etcd, err)
	}
	if err := cp.startAPIServer(opts); err != nil {
		return cp.failed(APIServer, err)
	}
	if err := cp.connect(ctx); err != nil {
		return cp.failed(APIServer, err)
	}
	if err := cp.InstallCRDs(ctx, opts.CRDs...); err != nil {
		return err
	}
	if opts.ControllerManager {
		if err := cp.startControllerManager(ctx, opts); err != nil {
			return cp.failed(ControllerManager, err)
		}
	}
	return ctx.Err()
}

// failed adds to an error what the component had to say.
func (cp *ControlPlane) failed(component string, err error) error {
	return fmt.Errorf("%s: %w\nlast lines of its log:\n%s", component, err, cp.logs[component].last(tailLines))
}

func (cp *ControlPlane) startEtcd() error {
	launcher, err := cp.dir.launcher(Etcd, cp.Assets.Etcd)
	if err != nil {
		return err
	}
	data := cp.dir.path("etcd")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("folder of etcd: %w", err)
	}
	log := cp.logs[Etcd]
	cp.plane = &envtest.ControlPlane{
		Etcd: &envtest.Etcd{Path: launcher, DataDir: data, Out: log, Err: log, StartTimeout: startTimeout},
	}
	return cp.plane.Etcd.Start()
}

func (cp *ControlPlane) startAPIServer(opts Options) error {
	launcher, err := cp.dir.launcher(APIServer, cp.Assets.APIServer)
	if err != nil {
		return err
	}
	pki := cp.dir.path("pki")
	if err := os.Mkdir(pki, 0o700); err != nil {
		return fmt.Errorf("folder of the API server: %w", err)
	}
	tokens, err := cp.writeToken()
	if err != nil {
		return err
	}
	log := cp.logs[APIServer]
	server := &envtest.APIServer{
		Path: launcher, CertDir: pki, EtcdURL: cp.plane.Etcd.URL, Out: log, Err: log, StartTimeout: startTimeout,
	}
	cp.plane.APIServer = server
	flags := server.Configure().
		Set("authorization-mode", "RBAC").
		Set("service-cluster-ip-range", cp.ServiceRange).
		Set("token-auth-file", tokens).
		// As on OpenShift: who makes an object whose owner is to be deleted after it needs a right for that.
		Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		// Without a node there is no address to offer the API at inside the cluster; the default would look for one on a
		// network device, and fails on a machine that has none.
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none")
	if opts.ControllerManager {
		// envtest leaves the ServiceAccount plugin out, because it refuses Pods in namespaces without the account
		// "default", and nobody makes that account. The controller manager does.
		flags.Disable("disable-admission-plugins")
	}
	if opts.AuditLog != "" {
		policy := cp.dir.path("audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return fmt.Errorf("audit policy: %w", err)
		}
		flags.Set("audit-policy-file", policy).Set("audit-log-path", opts.AuditLog)
	}
	for name, value := range opts.APIServerFlags {
		flags.Set(name, value)
	}
	return server.Start()
}

// auditPolicy leaves out the API server's own requests: there are many, and no webhook sees them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: Metadata
`

// writeToken makes the administrator's token, and the file by which the API server knows it.
func (cp *ControlPlane) writeToken() (path string, err error) {
	cp.token, path = rand.Text(), cp.dir.path("tokens.csv")
	if err := os.WriteFile(path, []byte(cp.token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("token of the administrator: %w", err)
	}
	return path, nil
}

// connect makes the administrator's configuration and waits for what the API server makes after it says it is healthy. The administrator
// has a token: of a client certificate the API server verifies the signature in each request, which takes a seventh of its time.
func (cp *ControlPlane) connect(ctx context.Context) error {
	serving := &cp.plane.APIServer.SecureServing
	config := &rest.Config{
		Host: serving.URL("https", "/").String(), TLSClientConfig: rest.TLSClientConfig{CAData: serving.CA}, BearerToken: cp.token,
		QPS: -1, // a local API server needs no protection from its tests
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	cp.Config, cp.clientset = config, clientset
	cp.kubeconfig = cp.dir.path("kubeconfig")
	if err := writeKubeconfig(cp.kubeconfig, config); err != nil {
		return err
	}
	return cp.exists(ctx, nil, "the namespace default", func(ctx context.Context) error {
		_, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

func (cp *ControlPlane) startControllerManager(ctx context.Context, opts Options) error {
	launcher, err := cp.dir.launcher(ControllerManager, cp.Assets.ControllerManager)
	if err != nil {
		return err
	}
	kubeconfig, err := cp.UserKubeconfig("system:kube-controller-manager", "system:masters")
	if err != nil {
		return err
	}
	ca := cp.dir.path("pki", "ca.crt")
	if err := os.WriteFile(ca, cp.Config.CAData, 0o600); err != nil {
		return fmt.Errorf("certificate authority of the cluster: %w", err)
	}
	flags := map[string]string{
		"kubeconfig":   kubeconfig,
		"leader-elect": "false",
		"bind-address": "127.0.0.1",
		"secure-port":  "0", // its metrics and health are not needed, so no port can collide
		// Policies can tell the garbage collector from other clients only by its ServiceAccount.
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": cp.dir.path("pki", "sa-signer.key"), // as envtest names it
		"root-ca-file":                     ca,
		"kube-api-qps":                     "500",
		"kube-api-burst":                   "1000",
		// Tests wait for these.
		"horizontal-pod-autoscaler-sync-period":             "1s",
		"horizontal-pod-autoscaler-downscale-stabilization": "1s",
	}
	maps.Copy(flags, opts.ControllerManagerFlags)
	args := make([]string, 0, len(flags))
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	cmd := exec.Command(launcher, args...)
	cmd.Stdout, cmd.Stderr = cp.logs[ControllerManager], cp.logs[ControllerManager]
	manager, err := StartDaemon(cmd)
	if err != nil {
		return err
	}
	return cp.exists(ctx, manager, "the ServiceAccount of the namespace default", func(ctx context.Context) error {
		_, err := cp.clientset.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// exists waits until get finds something, as long as the daemon that makes it (if any) runs.
func (cp *ControlPlane) exists(ctx context.Context, maker *Daemon, what string, get func(context.Context) error) error {
	err := wait.PollUntilContextTimeout(ctx, 25*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		if maker != nil {
			select {
			case <-maker.ended:
				return false, fmt.Errorf("it ended: %w", maker.err)
			default:
			}
		}
		err := get(ctx)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig file, which lasts until Stop.
func (cp *ControlPlane) Kubeconfig() string { return cp.kubeconfig }

// LogTail returns the end of a component's log: one of Etcd, APIServer, ControllerManager.
func (cp *ControlPlane) LogTail(component string) string {
	log, ok := cp.logs[component]
	if !ok {
		return ""
	}
	return strings.TrimRight(log.String(), "\n")
}

// Stop ends the control plane's own processes, at once, and removes its files. Further calls return what the first did.
func (cp *ControlPlane) Stop() error {
	cp.stopping.Do(func() {
		cp.stopErr = cp.dir.kill("*")
		for _, stop := range slices.Backward(cp.onStop) {
			stop()
		}
		if err := os.RemoveAll(string(cp.dir)); err != nil {
			cp.stopErr = errors.Join(cp.stopErr, fmt.Errorf("folder of the control plane: %w", err))
		}
	})
	return cp.stopErr
}
